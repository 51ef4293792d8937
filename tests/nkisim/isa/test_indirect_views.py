"""Tensor indirection of compute instructions (trn3): gathers, scatters, and who may do which."""

import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from isa_tiles import Psum, after, assert_shape_only_agrees, issued, refused, run_tiles, zeros
from nkisim.enums import engine, reduce_cmd

P, WIDE, TAKEN = 32, 10, 6


def floats(*shape):
    return np.random.default_rng(4).normal(size=shape).astype(np.float32)


INDEX = np.random.default_rng(6).permuted(np.tile(np.arange(WIDE), (2, 1)), axis=1)[:, :TAKEN]
"""The offsets of the two groups of 16 partitions."""


def index_tile():
    """Offset i of a group lies in its partition i % 16, column i // 16: six offsets, one column."""
    tile = np.zeros((P, 1), np.uint16)
    for group in range(2):
        tile[16 * group : 16 * group + TAKEN, 0] = INDEX[group]
    return tile


def picked(data):
    return np.concatenate([data[:16, INDEX[0]], data[16:, INDEX[1]]])


GATHERS = {
    "tensor_tensor": (
        lambda dst, x: nisa.tensor_tensor(dst, x, dst, nl.add),
        lambda x: x,
    ),
    "tensor_scalar": (
        lambda dst, x: nisa.tensor_scalar(dst, x, nl.multiply, 2.0),
        lambda x: 2 * x,
    ),
    "tensor_scalar_reduce": (
        lambda dst, x: nisa.tensor_scalar_reduce(dst, x, nl.multiply, 2.0, nl.add),
        lambda x: 2 * x,
    ),
    "tensor_scalar_cumulative": (
        lambda dst, x: nisa.tensor_scalar_cumulative(dst, x, nl.add, nl.max, 0.0),
        lambda x: np.maximum.accumulate(x, axis=1),
    ),
    "activation": (
        lambda dst, x: nisa.activation(dst, nl.relu, x),
        lambda x: np.maximum(x, 0),
    ),
    "activation_reduce": (
        lambda dst, x: nisa.activation_reduce(dst, nl.square, x, nl.add, None),
        np.square,
    ),
    "activate2": (
        lambda dst, x: nisa.activate2(dst, nl.copy, x, 1.0, 0.0, nl.add, nl.bypass),
        lambda x: x + 1,
    ),
    "exponential": (
        nisa.exponential,
        lambda x: np.exp(x.astype(np.float64)).astype(np.float32),
    ),
}


@pytest.mark.parametrize("name", GATHERS)
def test_gathering_the_source(name):
    instruct, reference = GATHERS[name]
    data = floats(P, WIDE)

    def issue(dst, x, index):
        instruct(dst, x.indirect(index, TAKEN))

    ran = run_tiles(issue, zeros(P, TAKEN), data, index_tile(), machine="trn3")
    np.testing.assert_array_equal(ran.outputs[0], reference(picked(data)))
    assert issued(ran, name).reads[-1].layout.dtype == "uint16"


def test_gathering_for_a_reduction():
    data = floats(P, WIDE)

    def issue(dst, x, index):
        nisa.tensor_reduce(dst, nl.maximum, x.indirect(index, TAKEN), 1)

    result = after(issue, zeros(P, 1), data, index_tile(), machine="trn3")[0]
    np.testing.assert_array_equal(result[:, 0], picked(data).max(axis=1))


def test_scattering_the_result():
    data = floats(P, TAKEN)

    def issue(dst, x, index):
        nisa.tensor_scalar(dst.indirect(index, TAKEN), x, nl.multiply, 2.0)

    result = after(issue, np.full((P, WIDE), 7, np.float32), data, index_tile(), machine="trn3")[0]
    np.testing.assert_array_equal(picked(result), 2 * data)
    assert (result == 7).sum() == P * (WIDE - TAKEN)


def test_gathering_a_predicate():
    pred = (floats(P, WIDE) > 0).astype(np.uint8)

    def issue(dst, p, index):
        nisa.tensor_copy_predicated(dst, 3.0, p.indirect(index, TAKEN))

    result = after(issue, zeros(P, TAKEN), pred, index_tile(), machine="trn3")[0]
    np.testing.assert_array_equal(result, 3.0 * picked(pred))


def indirect(x, index):
    return x.indirect(index, TAKEN)


ONLY_TRN3 = {"activate2", "exponential"}


@pytest.mark.parametrize("name", sorted(GATHERS.keys() - ONLY_TRN3))
def test_indirection_needs_trn3(name):
    instruct, _ = GATHERS[name]

    def issue(dst, x, index):
        instruct(dst, indirect(x, index))

    with refused(name, "from NeuronCore-v4 on"):
        after(issue, zeros(P, TAKEN), floats(P, WIDE), index_tile(), machine="trn2")


def test_reductions_gather_on_trn3_only():
    def issue(dst, x, index):
        nisa.tensor_reduce(dst, nl.maximum, indirect(x, index), 1)

    with refused("tensor_reduce", "from NeuronCore-v4 on"):
        after(issue, zeros(P, 1), floats(P, WIDE), index_tile(), machine="trn2")


def scalar_column(x, index):
    return x.indirect(index, 1)


UNSUPPORTED = {
    "tensor_tensor": lambda d, x, i: nisa.tensor_tensor(d, d, indirect(x, i), nl.add),
    "tensor_scalar": lambda d, x, i: nisa.tensor_scalar(d, d, nl.add, scalar_column(x, i)),
    "activation": lambda d, x, i: nisa.activation(d, nl.copy, d, bias=scalar_column(x, i)),
    "tensor_scalar_reduce": lambda d, x, i: nisa.tensor_scalar_reduce(
        d, d, nl.add, scalar_column(x, i), nl.add
    ),
    "tensor_scalar_cumulative": lambda d, x, i: nisa.tensor_scalar_cumulative(
        d, d, nl.add, nl.add, scalar_column(x, i)
    ),
    "activation_reduce": lambda d, x, i: nisa.activation_reduce(
        d, nl.copy, d, nl.add, scalar_column(x, i)
    ),
    "activate2": lambda d, x, i: nisa.activate2(
        d, nl.copy, d, scalar_column(x, i), 0.0, nl.add, nl.bypass
    ),
    "exponential": lambda d, x, i: nisa.exponential(d, d, scalar_column(x, i)),
    "scalar_tensor_tensor": lambda d, x, i: nisa.scalar_tensor_tensor(
        d, indirect(x, i), nl.add, 1.0, nl.add, d
    ),
    "reciprocal": lambda d, x, i: nisa.reciprocal(d, indirect(x, i)),
    "tensor_tensor_scan": lambda d, x, i: nisa.tensor_tensor_scan(
        d, indirect(x, i), d, 0.0, nl.add, nl.add
    ),
    "bn_stats": lambda d, x, i: nisa.bn_stats(d, indirect(x, i)),
    "bn_aggr": lambda d, x, i: nisa.bn_aggr(d[:, 0:2], indirect(x, i)),
    "tensor_copy_predicated": lambda d, x, i: nisa.tensor_copy_predicated(
        d, indirect(x, i), d.view(nl.uint32)
    ),
    "select_reduce": lambda d, x, i: nisa.select_reduce(
        d, i.broadcast(1, TAKEN), indirect(x, i), 0.0
    ),
    "range_select": lambda d, x, i: nisa.range_select(
        d, indirect(x, i), nl.less, nl.less, d[:, 0:1], d[:, 0:1]
    ),
    "tensor_partition_reduce": lambda d, x, i: nisa.tensor_partition_reduce(
        d[0:1], nl.add, indirect(x, i)
    ),
    "iota": lambda _, x, i: nisa.iota(indirect(x, i), [[1, TAKEN]]),
    "affine_select": lambda d, x, i: nisa.affine_select(d, [[1, TAKEN]], 0, indirect(x, i), 0.0),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_operands_that_cannot_be_indirect(name):
    with refused(name, "does not support tensor indirection"):
        tiles = zeros(P, TAKEN), floats(P, WIDE), index_tile()
        after(UNSUPPORTED[name], *tiles, machine="trn3")


def scale(dst, x):
    nisa.tensor_scalar(dst, x, nl.multiply, 2.0)


def test_an_index_is_made_of_integers_in_sbuf():
    def issue(dst, x, index):
        scale(dst, indirect(x, index))

    for index in (Psum(index_tile()), index_tile().astype(np.bool_)):
        with refused("tensor_scalar", "an integer tile in SBUF"):
            after(issue, zeros(P, TAKEN), floats(P, WIDE), index, machine="trn3")


def test_an_index_holds_enough_offsets():
    def issue(dst, x, index):
        scale(dst, x.indirect(index))

    with refused("tensor_scalar", "the offsets of a group of 16 partitions"):
        after(issue, zeros(P, P), floats(P, WIDE), index_tile(), machine="trn3")


def placed(name, shape, dtype, start, buffer=None):
    """A tile at a partition of our choice, far from the others."""
    address = {"x": 0, "index": 4096, "dst": 8192, "dst_index": 12288}[name]
    return nl.ndarray(shape, dtype, buffer or nl.sbuf, address=(start, address))


def test_a_gathered_source_starts_where_its_index_does():
    def issue(dst):
        x = placed("x", (16, WIDE), nl.float32, 0)
        index = placed("index", (16, 1), nl.uint16, 32)
        scale(dst, indirect(x, index))

    with refused("tensor_scalar", "both start on the same partition"):
        run_tiles(issue, zeros(16, TAKEN), machine="trn3", values=False)


def test_an_index_starts_on_a_quadrant():
    def issue(dst, x, index):
        scale(dst, indirect(x[0:16], index[16:32]))

    with refused("tensor_scalar", "a multiple of 32 partitions"):
        after(issue, zeros(16, TAKEN), floats(P, WIDE), index_tile(), machine="trn3")


def test_verdicts_remember_where_the_index_was():
    def issue(dst):
        x = placed("x", (16, WIDE), nl.float32, 0)
        for start in (0, 32):
            index = nl.ndarray((16, 1), nl.uint16, nl.sbuf, address=(start, 4096 + start))
            scale(dst, indirect(x, index))

    with refused("tensor_scalar", "both start on the same partition"):
        run_tiles(issue, zeros(16, TAKEN), machine="trn3", values=False)


def test_the_index_of_a_scatter_starts_where_an_sbuf_source_does():
    def issue(_):
        x = placed("x", (16, TAKEN), nl.float32, 32)
        dst = placed("dst", (16, WIDE), nl.float32, 0)
        index = placed("dst_index", (16, 1), nl.uint16, 0)
        scale(indirect(dst, index), x)

    with refused("tensor_scalar", "both start on the same partition"):
        run_tiles(issue, zeros(1, 1), machine="trn3", values=False)


def test_the_indices_of_a_scatter_from_a_gathered_psum_source_start_together():
    def issue(_):
        x = placed("x", (16, WIDE), nl.float32, 32, nl.psum)
        index = placed("index", (16, 1), nl.uint16, 32)
        dst = placed("dst", (16, WIDE), nl.float32, 0)
        dst_index = placed("dst_index", (16, 1), nl.uint16, 0)
        scale(indirect(dst, dst_index), indirect(x, index))

    with refused("tensor_scalar", "both start on the same partition"):
        run_tiles(issue, zeros(1, 1), machine="trn3", values=False)


def test_a_scatter_from_plain_psum_may_start_elsewhere():
    def issue(_):
        x = placed("x", (16, TAKEN), nl.float32, 32, nl.psum)
        dst = placed("dst", (16, WIDE), nl.float32, 0)
        dst_index = placed("dst_index", (16, 1), nl.uint16, 0)
        scale(indirect(dst, dst_index), x)

    ran = run_tiles(issue, zeros(1, 1), machine="trn3", values=False)
    assert issued(ran, "tensor_scalar").engine is engine.vector


def test_the_scalar_engine_does_not_scatter_to_psum():
    def issue(dst, x, index):
        nisa.activation(indirect(dst, index), nl.copy, x)

    with refused("activation", "scatters to SBUF only"):
        tiles = Psum(zeros(P, WIDE)), floats(P, TAKEN), index_tile()
        after(issue, *tiles, machine="trn3")


def test_registers_take_gathered_values():
    data = floats(P, WIDE)

    def issue(dst, x, index, result):
        options = {"reduce_res": result, "reduce_cmd": reduce_cmd.reset_reduce}
        nisa.tensor_scalar_reduce(dst, indirect(x, index), nl.add, 0.0, nl.max, **options)

    result = after(issue, zeros(P, TAKEN), data, index_tile(), zeros(P, 1), machine="trn3")[3]
    np.testing.assert_array_equal(result[:, 0], picked(data).max(axis=1))


def test_shape_only_runs_issue_the_same():
    def issue(dst, x, index):
        scale(dst, indirect(x, index))

    tiles = zeros(P, TAKEN), floats(P, WIDE), index_tile()
    assert_shape_only_agrees(issue, *tiles, machine="trn3")
