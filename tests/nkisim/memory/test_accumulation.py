"""Accumulation against the plainest model of it: one boolean for every byte of the tensor."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkisim.memory.accumulation import Accumulation
from nkisim.memory.layout import MemoryRegion, layout_of
from repetition import examples

PARTITIONS, ROW_BYTES = 8, 48
TYPES = {4: "float32", 2: "bfloat16", 1: "uint8"}


class EveryByte:
    """Which bytes a matmul wrote, kept one by one."""

    def __init__(self):
        self.bytes = np.zeros((PARTITIONS, ROW_BYTES), bool)

    def places(self, layout, offset):
        """(partition, first byte) of each element, by stepping through the view in Python."""
        size = layout.itemsize_bytes
        for index in np.ndindex(layout.shape):
            element = offset + sum(i * s for i, s in zip(index, layout.strides, strict=True))
            partition, byte = divmod(element * size, ROW_BYTES)
            yield index, partition, slice(byte, byte + size)

    def set(self, layout, offset, value):
        for _, partition, span in self.places(layout, offset):
            self.bytes[partition, span] = value

    def written(self, layout, offset):
        mask = np.zeros(layout.shape, bool)
        for index, partition, span in self.places(layout, offset):
            mask[index] = self.bytes[partition, span].all()
        return mask


@st.composite
def views(draw, itemsizes):
    """A view inside the tensor: a band of partitions, and up to two strided free dimensions."""
    itemsize = draw(st.sampled_from(itemsizes))
    row = ROW_BYTES // itemsize
    first = draw(st.sampled_from([0, 0, 0, 2, 4]))
    count = draw(st.sampled_from([PARTITIONS - first, PARTITIONS - first, 1, 3]))
    start = draw(st.integers(0, row - 1))
    room = row - 1 - start
    free = []
    for _ in range(draw(st.integers(1, 2))):
        stride = draw(st.integers(1, 4))
        size = draw(st.integers(1, min(6, room // stride + 1)))
        free.append((stride, size))
        room -= stride * (size - 1)
    shape = (count, *[size for _, size in free])
    strides = (row, *[stride for stride, _ in free])
    layout = layout_of(MemoryRegion.psum, TYPES[itemsize], shape, strides)
    return layout, first * row + start


def histories(itemsizes):
    step = st.tuples(st.sampled_from(["mark", "mark", "clear", "ask"]), views(itemsizes))
    return st.lists(step, min_size=1, max_size=12)


def replay(history, itemsize):
    """Run a history on both; what is asked, and every view again at the end, has to agree."""
    tracked = Accumulation(PARTITIONS, ROW_BYTES // itemsize, itemsize)
    model = EveryByte()
    for action, (layout, offset) in history:
        if action == "ask":
            agree(tracked, model, layout, offset)
        else:
            model.set(layout, offset, action == "mark")
            getattr(tracked, action)(layout, offset)
    for _, (layout, offset) in history:
        agree(tracked, model, layout, offset)
    assert tracked.foreign_writes == any(action == "clear" for action, _ in history)


def agree(tracked, model, layout, offset):
    expected = model.written(layout, offset)
    found = tracked.written(layout, offset)
    if expected.all():
        assert found is True
    elif not expected.any():
        assert found is False
    else:
        assert isinstance(found, np.ndarray)
        assert np.array_equal(np.broadcast_to(found, layout.shape), expected)


@examples(60)
@given(histories([4]))
def test_views_of_the_tensors_own_type(history):
    replay(history, 4)


@examples(60)
@given(histories([1, 2, 4]), st.sampled_from([4, 2]))
def test_views_of_every_type(history, itemsize):
    replay(history, itemsize)


def whole(columns=12, start=0, count=PARTITIONS, stride=1):
    layout = layout_of(MemoryRegion.psum, "float32", (count, columns), (12, stride))
    return layout, start


def test_overlapping_rectangles_add_only_where_both_wrote():
    """Columns 1..8 and then 0..7: column 0 is new, the others have been written."""
    history = Accumulation(PARTITIONS, 12, 4)
    assert history.written(*whole(8, 1)) is False
    history.mark(*whole(8, 1))
    mask = history.written(*whole(8, 0))
    assert np.broadcast_to(mask, (PARTITIONS, 8)).tolist() == [[False] + [True] * 7] * PARTITIONS
    history.mark(*whole(8, 0))
    assert history.written(*whole(9, 0)) is True
    assert history.written(*whole(3, 9)) is False


def test_a_mask_handed_out_does_not_change_later():
    history = Accumulation(PARTITIONS, 12, 4)
    history.mark(*whole(4))
    mask = history.written(*whole(12))
    history.mark(*whole(12))
    assert not mask.all()


def test_bands_of_partitions_are_told_apart():
    """Column tiles write 32 partitions each (here 4); one band says nothing about the next."""
    history = Accumulation(PARTITIONS, 12, 4)
    history.mark(*whole(12, 0, count=4))
    assert history.written(*whole(12, 4 * 12, count=4)) is False
    history.mark(*whole(6, 4 * 12, count=4))
    mask = history.written(*whole(12))
    assert mask[:4].all()
    assert mask[4:, :6].all()
    assert not mask[4:, 6:].any()


def test_a_copy_starts_the_history_again():
    history = Accumulation(PARTITIONS, 12, 4)
    assert not history.foreign_writes
    history.mark(*whole(12))
    history.clear(*whole(6, 0, stride=2))
    assert history.foreign_writes
    mask = np.broadcast_to(history.written(*whole(12)), (PARTITIONS, 12))
    assert mask.tolist() == [[False, True] * 6] * PARTITIONS


def test_half_an_element_is_not_an_element():
    history = Accumulation(PARTITIONS, 12, 4)
    half = layout_of(MemoryRegion.psum, "bfloat16", (PARTITIONS, 1), (24, 1))
    history.mark(half, 0)
    assert history.written(half, 0) is True
    assert history.written(half, 1) is False
    assert history.written(*whole(1)) is False


def test_the_model_can_disagree():
    model, history = EveryByte(), Accumulation(PARTITIONS, 12, 4)
    model.set(*whole(3), True)
    with pytest.raises(AssertionError):
        agree(history, model, *whole(12))
