"""reshaping: strides of new shapes, against the addresses NumPy enumerates."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkisim.errors import NkiValidationError
from nkisim.tensors.reshape import (
    Dims,
    expanded,
    fill_minus_one,
    merged,
    permuted,
    regroup,
    repeated,
    require_dim,
    reshape_strides,
    reshaped,
    row_major_strides,
    split,
    squeezed,
)
from repetition import examples

sizes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


def addresses(shape, strides):
    """The address of every element, in the view's shape."""
    grids = np.meshgrid(*[np.arange(n) for n in shape], indexing="ij")
    return sum((g * s for g, s in zip(grids, strides, strict=True)), np.zeros(shape, int))


def affine_strides(array):
    """Strides of an array of addresses if they are an affine function of the index, else None."""
    strides = []
    for axis in range(array.ndim):
        steps = np.unique(np.diff(array, axis=axis))
        if steps.size > 1:
            return None
        strides.append(int(steps[0]) if steps.size else None)
    return strides


def factorisations(total, length):
    """Every tuple of `length` positive integers with this product."""
    if length == 1:
        return [(total,)]
    divisors = [d for d in range(1, total + 1) if total % d == 0]
    return [(d, *rest) for d in divisors for rest in factorisations(total // d, length - 1)]


@given(sizes)
def test_row_major_strides_are_numpys(shape):
    bytes_of = np.empty(shape, np.int8).strides
    assert [s for s, n in zip(row_major_strides(shape), shape, strict=True) if n > 1] == [
        s for s, n in zip(bytes_of, shape, strict=True) if n > 1
    ]


@examples(60)
@given(
    sizes, st.lists(st.sampled_from([0, 1, 2, 3, 4, 6, 8, 12]), min_size=4, max_size=4), st.data()
)
def test_a_reshape_exists_exactly_when_the_addresses_allow_it(shape, strides, data):
    strides = tuple(strides[: len(shape)])
    new_shape = data.draw(st.sampled_from(factorisations(math.prod(shape), 3)))
    wanted = addresses(shape, strides).reshape(new_shape)
    found = reshape_strides(shape, strides, new_shape)
    expected = affine_strides(wanted)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert np.array_equal(addresses(new_shape, found), wanted)


def test_every_reshape_of_a_contiguous_tensor_exists():
    for length in (1, 2, 3):
        for new_shape in factorisations(24, length):
            assert reshape_strides((2, 3, 4), (12, 4, 1), new_shape) is not None


def test_a_size_one_dimension_gets_the_stride_of_a_fresh_tensor():
    assert reshape_strides((4, 6), (6, 1), (1, 4, 1, 6, 1)) == (24, 6, 6, 1, 1)
    assert reshape_strides((1,), (7,), (1, 1)) == (1, 1)


def test_partitions_are_not_merged_into_the_free_dimensions():
    tile = Dims((1, 8), (64, 1))  # one partition of a tile of 64 elements a row
    assert reshaped(tile, (1, 2, 4), "in sbuf") == ((1, 2, 4), (64, 4, 1))


REFUSALS = {
    "permute: dims \\(0, 0\\)\n  limit:  a permutation of 0..1": lambda d, p: permuted(
        d, (0, 0), p
    ),
    "permute: dims \\(1, 0\\) on a tensor in sbuf\n  limit:  the partition": lambda d, p: permuted(
        d, (1, 0), p
    ),
    "broadcast: dimension 1 of size 6 to 3": lambda d, p: repeated(d, 1, 3, p),
    "broadcast: dimension 2\n  limit:  dimensions 0..1": lambda d, p: repeated(d, 2, 3, p),
    "expand_dim: dimension 0 on": lambda d, p: expanded(d, 0, p),
    "expand_dim: dimension 3\n  limit:  dimensions 0..2": lambda d, p: expanded(d, 3, p),
    "squeeze_dim: dimension 0 on": lambda d, p: squeezed(d, 0, p),
    "squeeze_dim: dimension 1 of shape \\(4, 6\\)": lambda d, p: squeezed(d, 1, p),
    "squeeze_dim: dimension -1": lambda d, p: squeezed(d, -1, p),
    "reshape_dim: split of dimension 0 into \\(2, 2\\)": lambda d, p: split(d, 0, (2, 2), p),
    "reshape_dim: \\(4, 2\\) for 6 elements": lambda d, p: split(d, 1, (4, 2), p),
    "reshape_dim: \\(-1, -1\\) for 6 elements": lambda d, p: split(d, 1, (-1, -1), p),
    "reshape_dim: \\(4, -1\\) for 6 elements": lambda d, p: split(d, 1, (4, -1), p),
    "reshape_dim: dimension -1": lambda d, p: split(d, -1, (2, 3), p),
    "flatten_dims: dimensions 0..1 on a tensor in sbuf": lambda d, p: merged(d, 0, 1, p),
    "flatten_dims: dimensions 0..0 on": lambda d, p: merged(d, 0, 0, p),
    "flatten_dims: dimension 2": lambda d, p: merged(d, 1, 2, p),
    "reshape: shape \\(8, 3\\) from \\(4, 6\\) on a tensor in sbuf": lambda d, p: reshaped(
        d, (8, 3), p
    ),
    "reshape: \\(4, 5\\) for 24 elements\n  limit:  one size or more": lambda d, p: reshaped(
        d, (4, 5), p
    ),
    "reshape: \\(\\) for 24": lambda d, p: reshaped(d, (), p),
}


@pytest.mark.parametrize("message", REFUSALS)
def test_refusals_name_the_method_and_the_limit(message):
    with pytest.raises(NkiValidationError, match=message):
        REFUSALS[message](Dims((4, 6), (6, 1)), "in sbuf")


def test_free_dimensions_may_do_in_hbm_what_partitions_may_not():
    tile = Dims((4, 6), (6, 1))
    assert permuted(tile, (1, 0), None) == ((6, 4), (1, 6))
    assert expanded(tile, 0, None).shape == (1, 4, 6)
    assert split(tile, 0, (2, -1), None) == ((2, 2, 6), (12, 6, 1))
    assert merged(tile, 0, 1, None) == ((24,), (1,))
    assert reshaped(tile, (8, 3), None) == ((8, 3), (3, 1))
    assert repeated(expanded(tile, 0, None), 0, 5, None) == ((5, 4, 6), (0, 6, 1))


def test_the_trivial_split_of_the_partition_dimension_is_allowed():
    assert split(Dims((4, 6), (6, 1)), 0, (4,), "in psum") == ((4, 6), (6, 1))


def test_dimensions_with_a_gap_do_not_merge():
    with pytest.raises(NkiValidationError, match="without gaps"):
        merged(Dims((4, 3, 2), (100, 8, 1)), 1, 2, "in sbuf")
    with pytest.raises(NkiValidationError, match=r"dimensions 2..1"):
        merged(Dims((4, 3, 2), (6, 2, 1)), 2, 1, None)
    with pytest.raises(NkiValidationError, match="scattered"):
        reshaped(Dims((3, 2), (1, 3)), (6,), None)


def test_the_last_dimension_is_not_squeezed_away():
    with pytest.raises(NkiValidationError, match="one dimension stays"):
        squeezed(Dims((1,), (1,)), 0, None)


def test_broadcast_needs_at_least_one_copy():
    with pytest.raises(NkiValidationError, match="1 or more times"):
        repeated(Dims((4, 1), (1, 1)), 1, 0, None)


@given(st.integers(1, 60), st.integers(1, 60))
def test_minus_one_is_the_missing_factor(known, missing):
    assert fill_minus_one((known, -1), known * missing, "reshape") == (known, missing)


def test_zero_is_not_a_size():
    with pytest.raises(NkiValidationError, match="reshape"):
        fill_minus_one((0, -1), 12, "reshape")


def test_require_dim_takes_every_dimension_and_no_other():
    for dim in range(3):
        require_dim("slice", dim, 3)
    for dim in (-1, 3):
        with pytest.raises(NkiValidationError, match=f"slice: dimension {dim}"):
            require_dim("slice", dim, 3)


def test_regroup_plans_the_documented_example():
    parts, order, merges = regroup((128, 24), ("b", ("h", "w")), ("b", "w", "h"), {"h": 4})
    assert parts == [(128,), (4, 6)]
    assert order == (0, 2, 1)
    assert merges == [(0, 0), (1, 1), (2, 2)]


def test_regroup_takes_empty_groups_for_dimensions_of_one():
    parts, order, merges = regroup((4, 1), ("a", ()), ((), "a"), {})
    assert parts == [(4,), ()]
    assert order == (0,)
    assert merges == [(0, -1), (0, 0)]


BAD_GROUPS = [
    ((4, 6), ("a",), ("a",), {}, "one source entry per dimension"),
    ((4, 6), ("a", "b"), ("a", "c"), {}, "the same names"),
    ((4, 4), ("a", "a"), ("a", "a"), {}, "each once"),
    ((4, 6), ("a", "b"), ("b", "a"), {"c": 2}, "the same names"),
    ((4, 6), ("a", ("h", "w")), ("a", "h", "w"), {}, "all but one size"),
    ((4, 6), ("a", ("h", "w")), ("a", "h", "w"), {"h": 4}, "they divide"),
    ((4, 6), ("a", ("h", "w")), ("a", "h", "w"), {"h": 2, "w": 2}, "they divide"),
    ((4, 6), ("a", ("h", "w")), ("a", "h", "w"), {"h": 0}, "they divide"),
    ((4, 6), ("a", "b"), ("b", "a"), {"a": 2}, "they divide"),
    ((4, 6), ("a", ()), ("a",), {}, "they divide"),
]


@pytest.mark.parametrize(("shape", "src", "dst", "fixed", "limit"), BAD_GROUPS)
def test_regroup_refuses_patterns_that_do_not_fit(shape, src, dst, fixed, limit):
    with pytest.raises(NkiValidationError, match=f"rearrange: (.|\n)*{limit}"):
        regroup(shape, src, dst, fixed)


def test_affine_strides_can_fail():
    assert affine_strides(np.array([[0, 1], [2, 4]])) is None
    assert affine_strides(np.array([[0, 1], [2, 3]])) == [2, 1]
    assert list(itertools.islice(factorisations(6, 2), 4)) == [(1, 6), (2, 3), (3, 2), (6, 1)]
