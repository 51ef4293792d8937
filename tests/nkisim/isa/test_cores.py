"""sendrecv and core_barrier on two cores."""

import ml_dtypes
import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from isa_tiles import refused
from kernel_steps import load, specs
from nkisim.enums import dma_engine, engine
from nkisim.errors import RaceError
from nkisim.running.kernel import Kernel, run


@pytest.fixture
def rng():
    return np.random.default_rng(21)


def on_two_cores(kernel, *arrays, machine="trn2", values=True):
    given = arrays if values else specs(*arrays)
    return run(Kernel(kernel)[2], *given, machine=machine, values=values)


def exchange(x, ranks=None, **options):
    """Each core sends its own part of x; results lie by core."""
    me = nl.program_id(0)
    to, sender = ranks[me] if ranks else (1 - me, 1 - me)
    mine = load(x[me])
    received = nl.ndarray(mine.shape, x.dtype, nl.sbuf)
    options = {"pipe_id": 0, **options}
    nisa.sendrecv(mine, received, send_to_rank=to, recv_from_rank=sender, **options)
    result = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    nisa.dma_copy(result[me], received)
    return result


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int8])
@pytest.mark.parametrize("route", list(dma_engine))
@pytest.mark.parametrize("machine", ["trn2", "trn3"])
def test_two_cores_swap_tiles(rng, dtype, route, machine):
    x = rng.integers(-99, 99, size=(2, 64, 30)).astype(dtype)

    def kernel(x):
        return exchange(x, dma_engine=route)

    np.testing.assert_array_equal(on_two_cores(kernel, x, machine=machine).outputs, x[::-1])


def test_a_core_may_send_to_itself(rng):
    x = rng.normal(size=(2, 8, 4)).astype(np.float32)
    run_ = on_two_cores(lambda x: exchange(x, ranks=((0, 0), (1, 1))), x)
    np.testing.assert_array_equal(run_.outputs, x)


def test_a_tile_is_sent_as_it_was_at_the_call(rng):
    """Core 0 overwrites what it sent before core 1 has run at all."""
    x = rng.normal(size=(2, 8, 4)).astype(np.float32)

    def kernel(x):
        me = nl.program_id(0)
        both = load(x[me])
        nisa.sendrecv(both, both, 1 - me, 1 - me, pipe_id=3)
        nisa.tensor_copy(both[:, 0:1], both[:, 1:2])
        result = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        nisa.dma_copy(result[me], both)
        return result

    expected = x[::-1].copy()
    expected[:, :, 0] = expected[:, :, 1]
    np.testing.assert_array_equal(on_two_cores(kernel, x).outputs, expected)


def test_cores_exchange_in_rounds(rng):
    """A sum over cores that goes back and forth three times."""
    x = rng.integers(0, 9, size=(2, 8, 4)).astype(np.float32)

    def kernel(x):
        me = nl.program_id(0)
        total = load(x[me])
        other = nl.ndarray((8, 4), nl.float32, nl.sbuf)
        for round_ in range(3):
            nisa.sendrecv(total, other, 1 - me, 1 - me, pipe_id=round_)
            nisa.tensor_tensor(total, total, other, nl.add)
        result = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        nisa.dma_copy(result[me], total)
        return result

    outputs = on_two_cores(kernel, x).outputs
    np.testing.assert_array_equal(outputs, np.stack([4 * x.sum(axis=0)] * 2))


def test_a_shape_only_run_meets_as_well(rng):
    x = rng.normal(size=(2, 8, 4)).astype(np.float32)
    with_values = on_two_cores(exchange, x)
    without = on_two_cores(exchange, x, values=False)
    assert len(without.traces) == 2
    for one, two in zip(with_values.traces, without.traces, strict=True):
        assert one.key() == two.key()
        assert sum(1 for i in one.instructions() if i.op == "sendrecv") == 1


def test_the_engine_and_the_ranks_are_recorded(rng):
    x = rng.normal(size=(2, 8, 4)).astype(np.float32)
    run_ = on_two_cores(lambda x: exchange(x, dma_engine=dma_engine.gpsimd_dma), x)
    sent = next(i for i in run_.traces[1].instructions() if i.op == "sendrecv")
    assert sent.engine is engine.gpsimd
    assert sent.option("send_to_rank") == 0
    assert sent.option("pipe_id") == 0


@pytest.mark.parametrize(
    ("dtype", "bytes_"), [(np.float32, 1024), (ml_dtypes.bfloat16, 512), (np.int8, 256)]
)
def test_the_gpsimd_route_is_narrow(dtype, bytes_):
    elems = bytes_ // np.dtype(dtype).itemsize

    def kernel(x):
        return exchange(x, dma_engine=dma_engine.gpsimd_dma)

    on_two_cores(kernel, np.zeros((2, 4, elems), dtype))
    with refused("sendrecv", f"{bytes_} bytes per partition"):
        on_two_cores(kernel, np.zeros((2, 4, elems + 1), dtype))
    on_two_cores(exchange, np.zeros((2, 4, elems + 1), dtype))


X = np.zeros((2, 8, 4), np.float32)


@pytest.mark.parametrize(
    ("kernel", "limit"),
    [
        (lambda x: exchange(x, ranks=((2, 1), (0, 0))), r"one of \(0, 1\)"),
        (lambda x: exchange(x, ranks=((1, -1), (0, 0))), r"one of \(0, 1\)"),
        (lambda x: exchange(x, ranks=((0, 1), (0, 0))), "what a core receives is sent to it"),
        (lambda x: exchange(x, dma_engine="dma"), "a nisa.dma_engine"),
    ],
)
def test_sendrecv_is_refused_for(kernel, limit):
    with refused("sendrecv", limit):
        on_two_cores(kernel, X)


@pytest.mark.parametrize("values", [True, False])
def test_different_pipes_do_not_meet(values):
    def kernel(x):
        return exchange(x, pipe_id=nl.program_id(0))

    with pytest.raises(nisa.NkiValidationError, match="pipe_id=1 while core 0 waits in"):
        on_two_cores(kernel, X, values=values)


@pytest.mark.parametrize("values", [True, False])
def test_both_cores_take_part(values):
    def kernel(x):
        if nl.program_id(0) == 0:
            exchange(x)

    with pytest.raises(nisa.NkiValidationError, match="core 1 has ended"):
        on_two_cores(kernel, X, values=values)


def test_both_cores_send_what_the_other_expects():
    def kernel(x):
        me = nl.program_id(0)
        tile = nl.ndarray((8, 4 + me), nl.float32, nl.sbuf)
        nisa.memset(tile, 0.0)
        nisa.sendrecv(tile, tile, 1 - me, 1 - me, pipe_id=0)

    with refused("sendrecv", "the same dtype and shape"):
        on_two_cores(kernel, X)


def test_src_and_dst_are_alike_and_in_sbuf():
    def other_shape(x):
        tile = load(x[0])
        nisa.sendrecv(tile, nl.ndarray((8, 2, 2), nl.float32, nl.sbuf), 1, 1, pipe_id=0)

    def other_type(x):
        tile = load(x[0])
        nisa.sendrecv(tile, nl.ndarray((8, 4), nl.int32, nl.sbuf), 1, 1, pipe_id=0)

    def from_hbm(x):
        nisa.sendrecv(x[0], nl.ndarray((8, 4), nl.float32, nl.sbuf), 1, 1, pipe_id=0)

    for kernel, limit in (
        (other_shape, "the same shape"),
        (other_type, "the same dtype"),
        (from_hbm, "src may live in sbuf"),
    ):
        with refused("sendrecv", limit):
            on_two_cores(kernel, X)


def halves(x, *, barrier=True, cores=(0, 1), **options):
    """Each core writes its half of a shared tensor, then reads the other half."""
    me = nl.program_id(0)
    shared = nl.ndarray(x.shape, x.dtype, nl.shared_hbm, name="shared")
    nisa.dma_copy(shared[me], load(x[me]))
    if barrier:
        nisa.core_barrier(shared, cores, **options)
    result = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    nisa.dma_copy(result[me], load(shared[1 - me]))
    return result


@pytest.mark.parametrize("where", [engine.gpsimd, engine.vector, engine.scalar, engine.sync])
def test_a_barrier_makes_writes_of_the_other_core_visible(rng, where):
    x = rng.normal(size=(2, 8, 4)).astype(np.float32)
    run_ = on_two_cores(lambda x: halves(x, engine=where), x)
    np.testing.assert_array_equal(run_.outputs, x[::-1])
    barrier = next(i for i in run_.traces[0].instructions() if i.op == "core_barrier")
    assert barrier.engine is where


def test_without_the_barrier_it_is_a_race(rng):
    x = rng.normal(size=(2, 8, 4)).astype(np.float32)
    with pytest.raises(RaceError, match="shared"):
        on_two_cores(lambda x: halves(x, barrier=False), x)


def test_a_barrier_is_in_both_traces(rng):
    with_values = on_two_cores(halves, X)
    without = on_two_cores(halves, X, values=False)
    for one, two in zip(with_values.traces, without.traces, strict=True):
        assert one.key() == two.key()


def test_cores_may_be_a_list():
    on_two_cores(lambda x: halves(x, cores=[0, 1]), X)


@pytest.mark.parametrize(
    ("kernel", "limit"),
    [
        (lambda x: halves(x, cores=(0,)), r"cores=\(0, 1\)"),
        (lambda x: halves(x, cores=(1, 0)), r"cores=\(0, 1\)"),
        (lambda x: halves(x, engine=engine.dma), "runs on engine.gpsimd"),
        (
            lambda _: nisa.core_barrier(nl.ndarray((4, 4), nl.float32, nl.psum), (0, 1)),
            "data may live in sbuf, shared_hbm",
        ),
    ],
)
def test_core_barrier_is_refused_for(kernel, limit):
    with refused("core_barrier", limit):
        on_two_cores(kernel, X)


def test_a_barrier_on_an_own_tile_meets_and_orders_nothing_in_hbm():
    def kernel(x, named):
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        tile = load(x[0])
        if nl.program_id(0) == 0:
            nisa.dma_copy(out[0], tile)
            nisa.dma_copy(out[1], tile)
        nisa.core_barrier(out if named else tile, (0, 1))
        if nl.program_id(0) == 1:
            nisa.dma_copy(out[1], load(x[1]))
        return out

    np.testing.assert_array_equal(on_two_cores(lambda x: kernel(x, True), X).outputs, X)
    with pytest.raises(RaceError, match="core 0 writes"):
        on_two_cores(lambda x: kernel(x, False), X)


def test_both_cores_name_the_same_tensor():
    def kernel(x):
        one = nl.ndarray((4,), nl.float32, nl.shared_hbm, name="one")
        two = nl.ndarray((4,), nl.float32, nl.shared_hbm, name="two")
        nisa.core_barrier(one if nl.program_id(0) == 0 else two, (0, 1))

    with refused("core_barrier", "the same shared tensor"):
        on_two_cores(kernel, X)


@pytest.mark.parametrize("kernel", [exchange, halves])
def test_one_core_is_refused(kernel):
    instruction = "sendrecv" if kernel is exchange else "core_barrier"
    with refused(instruction, "the two cores of an LNC2 launch"):
        run(Kernel(kernel)[1], X, machine="trn2")


@pytest.mark.parametrize("kernel", [exchange, halves])
def test_trn1_has_no_second_core_and_neither_instruction(kernel):
    instruction = "sendrecv" if kernel is exchange else "core_barrier"
    with refused(f"kernel {kernel.__name__}", "logical NeuronCores exist from NeuronCore-v3 on"):
        on_two_cores(kernel, X, machine="trn1")
    with refused(instruction, "exists from NeuronCore-v3 on"):
        run(kernel, X, machine="trn1")
