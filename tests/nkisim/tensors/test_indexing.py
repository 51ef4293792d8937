"""`tensor[key]`: what a key selects in HBM and on chip, against NumPy on an array of addresses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkisim.errors import NkiValidationError
from nkisim.tensors.indexing import DynamicSlice, dynamic_room, select_key
from nkisim.tensors.registers import VirtualRegister
from nkisim.tensors.reshape import row_major_strides
from repetition import examples


def addresses(selection):
    grids = np.meshgrid(*[np.arange(n) for n in selection.shape], indexing="ij")
    steps = [g * s for g, s in zip(grids, selection.strides, strict=True)]
    return selection.offset + sum(steps, np.zeros(selection.shape, int))


def numpy_rule(array, key, *, on_chip):
    """NKI's rule in NumPy's terms: an integer on partitions is a slice, and ranks have a floor."""
    keys = list(key) if isinstance(key, tuple) else [key]
    where = keys.index(Ellipsis) if Ellipsis in keys else len(keys)
    missing = array.ndim - (len(keys) - (Ellipsis in keys))
    keys[where : where + 1] = [slice(None)] * missing
    if on_chip and isinstance(keys[0], int):
        index = keys[0] % array.shape[0]
        keys[0] = slice(index, index + 1)
    picked = array[tuple(keys)]
    least = 2 if on_chip else 1
    return picked if picked.ndim >= least else picked[..., np.newaxis]


@st.composite
def one_key(draw, size):
    """An integer or a slice that NKI allows on a dimension of this size, in any spelling."""
    if draw(st.booleans()):
        return draw(st.integers(-size, size - 1))
    start = draw(st.integers(0, size - 1))
    stop = draw(st.integers(start + 1, size))
    step = draw(st.one_of(st.none(), st.integers(1, size + 1)))
    spelled_start = draw(st.sampled_from([start, start - size] + [None] * (start == 0)))
    spelled_stop = draw(
        st.sampled_from([stop] + [stop - size] * (stop < size) + [None] * (stop == size))
    )
    return slice(spelled_start, spelled_stop, step)


@st.composite
def shape_and_key(draw, least):
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=least, max_size=5)))
    named = draw(st.integers(0, len(shape)))
    keys = [draw(one_key(size)) for size in shape[:named]]
    if draw(st.booleans()):  # from the back: keys after an ellipsis
        split = draw(st.integers(0, named))
        tail = [draw(one_key(size)) for size in shape[len(shape) - named + split :]]
        keys = [*keys[:split], Ellipsis, *tail]
    if len(keys) == 1 and draw(st.booleans()):
        return shape, keys[0]
    return shape, tuple(keys)


@examples(60)
@given(st.data(), st.booleans())
def test_every_key_selects_what_numpy_selects(data, on_chip):
    shape, key = data.draw(shape_and_key(2 if on_chip else 1))
    expected = numpy_rule(np.arange(np.prod(shape)).reshape(shape), key, on_chip=on_chip)
    selected = select_key(shape, row_major_strides(shape), key, on_chip=on_chip)
    assert selected.shape == expected.shape
    assert np.array_equal(addresses(selected), expected)
    assert selected.dynamic is None


DOCUMENTED = [
    # (shape, key, result in HBM, result on chip)
    ((64, 64, 64), (0, 0, 10), (1,), (1, 1)),
    ((64, 64, 64), (slice(None), 0), (64, 64), (64, 64)),
    ((64, 64, 64), (slice(None), 0, 10), (64,), (64, 1)),
    ((64, 64, 64), (0, Ellipsis, slice(None)), (64, 64), (1, 64, 64)),
    ((64, 64, 64), 5, (64, 64), (1, 64, 64)),
    ((128, 64), (Ellipsis, 0), (128,), (128, 1)),
    ((128, 64), (slice(0, 7), 0), (7,), (7, 1)),
    ((128, 64), (slice(None), slice(0, 32, 2)), (128, 16), (128, 16)),
    ((128, 64), (3, 4), (1,), (1, 1)),
    ((128, 64), Ellipsis, (128, 64), (128, 64)),
    ((128, 64), (), (128, 64), (128, 64)),
]


@pytest.mark.parametrize(("shape", "key", "in_hbm", "on_chip"), DOCUMENTED)
def test_integers_drop_dimensions_as_documented(shape, key, in_hbm, on_chip):
    strides = row_major_strides(shape)
    assert select_key(shape, strides, key, on_chip=False).shape == in_hbm
    assert select_key(shape, strides, key, on_chip=True).shape == on_chip


def test_numpy_integers_are_indices_like_any_other():
    found = select_key(
        (4, 6), (6, 1), (np.int64(2), slice(np.int32(1), np.int64(5))), on_chip=False
    )
    assert (found.shape, found.offset) == ((4,), 13)


SLICES_OUTSIDE = [
    slice(0, 7),  # stop beyond the end is not clamped
    slice(3, 3),
    slice(4, 2),
    slice(6, None),
    slice(-7, None),
    slice(None, -6),
    slice(0, 4, 0),
    slice(0, 4, -1),
]


@pytest.mark.parametrize("key", SLICES_OUTSIDE, ids=str)
def test_a_slice_outside_the_dimension_is_refused(key):
    limit = "0 <= start < stop <= 6 elements and step >= 1; bounds are not clamped"
    with pytest.raises(NkiValidationError, match="on dimension 1") as refusal:
        select_key((4, 6), (6, 1), (slice(None), key), on_chip=True)
    assert refusal.value.limit == limit
    assert refusal.value.remedy == "cut the slice to the dimension"


@pytest.mark.parametrize("index", [6, -7, 100])
def test_an_index_outside_the_dimension_is_refused(index):
    with pytest.raises(NkiValidationError, match=f"index {index} on dimension 1") as refusal:
        select_key((4, 6), (6, 1), (0, index), on_chip=False)
    assert refusal.value.limit == "the dimension has 6 elements"


@pytest.mark.parametrize("key", [None, 1.0, "a", True, [0, 1], (0,), VirtualRegister(1)], ids=repr)
def test_a_key_of_another_kind_is_refused(key):
    with pytest.raises(NkiValidationError, match=r"tensor index: .* key on dimension 1") as refusal:
        select_key((4, 6), (6, 1), (slice(None), key), on_chip=False)
    assert "integers, slices, nl.ds" in refusal.value.limit


@pytest.mark.parametrize("key", [(0, 0, 0), (Ellipsis, 0, 0, 0), (Ellipsis, Ellipsis)], ids=repr)
def test_more_keys_than_dimensions_are_refused(key):
    with pytest.raises(NkiValidationError, match="keys on a tensor of 2 dimensions"):
        select_key((4, 6), (6, 1), key, on_chip=False)


def test_a_dynamic_slice_keeps_its_register_and_the_stride_it_steps_by():
    register = VirtualRegister(2)
    key = (slice(1, 3), DynamicSlice(register, 4))
    found = select_key((4, 6), (6, 1), key, on_chip=False)
    assert (found.shape, found.strides, found.offset) == ((2, 4), (6, 1), 6)
    assert found.dynamic == (register, 1)


def test_two_dynamic_slices_are_refused():
    window = DynamicSlice(VirtualRegister(0), 2)
    with pytest.raises(NkiValidationError, match="two dynamic slices") as refusal:
        select_key((4, 6), (6, 1), (window, window), on_chip=False)
    assert refusal.value.limit == "one run-time offset per view"


def test_the_start_of_a_dynamic_slice_has_room_for_its_window():
    window = DynamicSlice(VirtualRegister(0), 4)
    assert dynamic_room((9, 6), (slice(None), window)) == 3
    assert dynamic_room((9, 6), window) == 6
    assert dynamic_room((9, 5, 6), (Ellipsis, window)) == 3
    assert dynamic_room((9, 5, 6), (Ellipsis, window, slice(None))) == 2


@pytest.mark.parametrize("size", [0, -1, 7])
def test_a_dynamic_window_larger_than_its_dimension_is_refused(size):
    window = DynamicSlice(VirtualRegister(0), size)
    with pytest.raises(NkiValidationError, match=r"nl.ds") as refusal:
        dynamic_room((9, 6), (0, window))
    assert refusal.value.limit == "1..6 elements"
