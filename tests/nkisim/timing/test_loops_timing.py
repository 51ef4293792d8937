"""Hardware loops: a few iterations are scheduled, the rest follows; the result is that of all."""

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.machine import TRN2, Reading
from nkisim.running.host_arrays import Spec
from nkisim.running.kernel import run
from nkisim.timing import schedule
from nkisim.timing.loops import Mark, SteadyState
from random_traces import with_loop
from timing_instructions import HBM, engine, instruction, loop_of, tensor, trace_of, view, whole

pytestmark = pytest.mark.usefixtures("logical_cores_of_one")  # loops on one core

PAUSE_NS = 4000  # what an iteration of a hardware loop costs on top (DFA)
NO_PAUSE = replace(TRN2, timing=replace(TRN2.timing, loop_iteration_ns=0.0))
TRIPS = 1000
approx = pytest.approx


def rows(matrix, first, count):
    """`count` rows from a number or a register on."""
    if isinstance(first, int):
        return matrix[first : first + count]
    width = matrix.shape[1]
    return matrix.ap([[width, count], [1, width]], scalar_offset=first)


def repeat(rolled, trips, step, body):
    """A hardware loop, or the same iterations one after the other."""
    if rolled:
        nl.fori_loop(0, trips * step, body, step)
    else:
        for first in range(0, trips * step, step):
            body(first)


def copy_kernel(x, trips, rolled):
    """One buffer: load, copy, store."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, copied = (nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf) for _ in range(2))

    def body(first):
        nisa.dma_copy(tile, rows(x, first, 128))
        nisa.tensor_copy(copied, tile)
        nisa.dma_copy(rows(out, first, 128), copied)

    repeat(rolled, trips, 128, body)
    return out


def matmul_kernel(x, trips, rolled):
    """Two buffers of everything: while one half is multiplied, the other one is moved."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    weights = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(weights, x[:128, :128])
    tiles = [nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf) for _ in range(2)]
    results = [nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf) for _ in range(2)]

    def body(first):
        for half, (tile, result) in enumerate(zip(tiles, results, strict=True)):
            total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            block = x[128 * half :], out[128 * half :]
            nisa.dma_copy(tile, rows(block[0], first, 128))
            for turn in range(4):
                nisa.nc_matmul(total, weights, tile, accumulate=turn > 0)
            nisa.tensor_copy(result, total)
            nisa.dma_copy(rows(block[1], first, 128), result)

    repeat(rolled, trips, 256, body)
    return out


def chain_kernel(x, trips, rolled):
    """Each instruction needs the one before; the Scalar engine changes its table twice."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a, b, c = (nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf) for _ in range(3))

    def body(first):
        nisa.dma_copy(a, rows(x, first, 128))
        nisa.activation(b, nl.exp, a)
        nisa.tensor_tensor(c, a, b, nl.multiply)
        nisa.activation(b, nl.gelu, c)
        nisa.tensor_scalar(b, b, nl.add, 1.0)
        nisa.dma_copy(rows(out, first, 128), b)

    repeat(rolled, trips, 128, body)
    return out


KERNELS = {
    "copy": (copy_kernel, 128, "float32", 3),
    "matmul": (matmul_kernel, 256, "bfloat16", 14),
    "chain": (chain_kernel, 128, "float32", 6),
}


def traced(name, trips, *, rolled):
    kernel, step, dtype, _ = KERNELS[name]
    spec = Spec((trips * step, 512), dtype)
    done = run(lambda x: kernel(x, trips, rolled), spec, target="trn2", values=False)
    return done.trace


@pytest.mark.parametrize("reading", list(Reading))
@pytest.mark.parametrize("name", sorted(KERNELS))
def test_a_loop_is_timed_in_the_work_of_a_few_iterations(name, reading):
    trace = traced(name, TRIPS, rolled=True)
    quick = schedule(trace, TRN2, reading)
    every = schedule(trace, TRN2, reading, extrapolate=False)
    body = KERNELS[name][3]
    assert len(every.events) >= TRIPS * body
    assert len(quick.events) <= 30 * body
    assert quick.makespan_ns == approx(every.makespan_ns, rel=0.01)
    assert quick.executed_instructions == every.executed_instructions
    assert quick.flops == every.flops
    assert quick.hbm_bytes == every.hbm_bytes
    assert quick.busy_ns == approx(every.busy_ns, rel=0.01)


@pytest.mark.parametrize("reading", [Reading.default, Reading.pessimistic])
@pytest.mark.parametrize("name", sorted(KERNELS))
def test_a_loop_takes_the_time_of_the_unrolled_stream_and_its_own(name, reading):
    rolled = schedule(traced(name, TRIPS, rolled=True), TRN2, reading)
    unrolled = schedule(traced(name, TRIPS, rolled=False), TRN2, reading)
    pause = TRN2.read(reading).timing.loop_iteration_ns
    assert rolled.makespan_ns == approx(unrolled.makespan_ns + TRIPS * pause, rel=0.01)
    assert rolled.busy_ns == approx(unrolled.busy_ns, rel=0.01)


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_in_a_window_a_loop_keeps_what_lies_inside_an_iteration(name):
    """Unrolled, the window also reaches into the next iteration, so it can only be faster."""
    rolled = schedule(traced(name, 100, rolled=True), TRN2, Reading.optimistic)
    unrolled = schedule(traced(name, 100, rolled=False), TRN2, Reading.optimistic)
    assert rolled.makespan_ns >= unrolled.makespan_ns + 100 * PAUSE_NS - 1e-3


@pytest.mark.parametrize("trips", [1, 2, 3, 4, 5, 6, 7, 11])
def test_short_loops_are_exact(trips):
    trace = traced("chain", trips, rolled=True)
    quick = schedule(trace, TRN2)
    every = schedule(trace, TRN2, extrapolate=False)
    assert quick.makespan_ns == approx(every.makespan_ns, rel=1e-9)
    unrolled = schedule(traced("chain", trips, rolled=False), TRN2)
    assert every.makespan_ns == approx(unrolled.makespan_ns + trips * PAUSE_NS, rel=1e-9)


def test_the_iterations_left_out_are_accounted_for():
    found = schedule(traced("copy", TRIPS, rolled=True), TRN2)
    (elision,) = found.elisions
    scheduled = len(found.events) // 3
    assert scheduled + elision.iterations == TRIPS
    assert elision.ns_per_iteration * elision.iterations == approx(elision.duration_ns)
    assert elision.ns_per_iteration > PAUSE_NS
    assert elision.end_row - elision.first_row == 3
    events = found.events
    later = [events.start_ns[row] for row in range(elision.end_row, len(events))]
    assert later
    assert min(later) > elision.at_ns + elision.duration_ns - elision.ns_per_iteration
    assert max(events.visible_ns) == approx(found.makespan_ns - PAUSE_NS)


@given(seed=st.integers(0, 2**32))
@example(seed=34779)  # two matmuls of an iteration gain unequally until one meets the other
@settings(max_examples=20, deadline=None)
def test_random_loops_take_what_all_their_iterations_take(seed):
    trace = with_loop(seed, 120, body=10)
    for window in (1.0, 8.0):
        on = replace(TRN2, timing=replace(TRN2.timing, reorder_window=window))
        quick, every = (schedule(trace, on, extrapolate=how) for how in (True, False))
        assert quick.makespan_ns == approx(every.makespan_ns, rel=0.01)
        assert quick.executed_instructions == every.executed_instructions
        assert quick.busy_ns == approx(every.busy_ns, rel=0.01)


def test_nested_loops():
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)

        def outer(first):
            nisa.dma_copy(tile, rows(x, first, 128))

            def inner(_):
                nisa.tensor_tensor(tile, tile, tile, nl.add)
                nisa.tensor_scalar(tile, tile, nl.multiply, 0.5)

            nl.fori_loop(0, 60, inner)
            nisa.dma_copy(rows(out, first, 128), tile)

        nl.fori_loop(0, 50 * 128, outer, 128)
        return out

    trace = run(kernel, Spec((50 * 128, 512), "float32"), target="trn2", values=False).trace
    quick = schedule(trace, TRN2)
    every = schedule(trace, TRN2, extrapolate=False)
    assert len(every.events) == 50 * (2 + 60 * 2)
    assert len(quick.events) < len(every.events) / 10
    assert quick.makespan_ns == approx(every.makespan_ns, rel=0.01)
    assert quick.executed_instructions == len(every.events)
    assert quick.makespan_ns > 50 * 61 * PAUSE_NS  # both loops cost


def test_a_loop_whose_trips_nobody_knows_counts_once():
    def kernel(x, n):
        bound = nisa.register_alloc()
        count = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(count, n)
        nisa.register_load(bound, count)
        tile = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, x)
        nl.fori_loop(0, bound, lambda _: nisa.tensor_tensor(tile, tile, tile, nl.add))
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, tile)
        return out

    specs = Spec((128, 64), "float32"), Spec((1, 1), "int32")
    trace = run(kernel, *specs, target="trn2", values=False).trace
    found = schedule(trace, TRN2)
    assert found.executed_instructions == found.static_instructions == 5
    assert found.elisions == ()


def test_a_cold_array_is_not_taken_for_a_steady_one():
    """For 3 us of work every iteration takes the same, twice what the others take."""
    a, b = whole((128, 128), "bfloat16"), whole((128, 128), "bfloat16")
    psum = whole((128, 128), "float32", region=nl.psum)
    trace = trace_of(loop_of(1000, instruction("nc_matmul", engine.tensor, [psum], [a, b])))
    quick, every = (schedule(trace, NO_PAUSE, extrapolate=how) for how in (True, False))
    assert quick.makespan_ns == approx(every.makespan_ns, rel=1e-6)
    assert quick.makespan_ns < 1.1 * 1000 * (128 + 16) / 2.4
    assert len(quick.events) < 100


def test_a_slow_engine_that_starts_behind_is_not_overlooked():
    """DMA has a head start of a long load; the Vector engine gains less often but passes it."""
    long, short = (
        instruction("dma_copy", engine.dma, [whole(shape)], [whole(shape, region=HBM)])
        for shape in ((128, 20_000), (128, 64))
    )
    work = instruction("memset", engine.vector, [whole((128, 1024))])
    trace = trace_of(long, loop_of(400, short, work))
    quick, every = (schedule(trace, TRN2, extrapolate=how) for how in (True, False))
    first = schedule(trace_of(long), TRN2).makespan_ns
    assert first > 20 * 1100  # more than 20 iterations
    assert len(quick.events) < 60
    assert quick.makespan_ns == approx(every.makespan_ns, rel=1e-6)
    assert quick.busy_ns == approx(every.busy_ns)


@pytest.mark.parametrize("row", [0, 500, 999])
def test_what_skipped_iterations_wrote_is_waited_for(row):
    """Rows of an HBM tensor are stored by a loop; afterwards one of them is loaded."""
    out = tensor((1000, 512), region=HBM)
    tile, back = whole((1, 512)), whole((1, 512))
    fill = instruction("memset", engine.vector, [tile])
    store = instruction("dma_copy", engine.dma, [view(out, (1, 512), step=512, loop=0)], [tile])
    load = instruction("dma_copy", engine.dma, [back], [view(out, (1, 512), offset=512 * row)])
    trace = trace_of(loop_of(1000, fill, store), load)
    quick, every = (schedule(trace, NO_PAUSE, extrapolate=how).events for how in (True, False))
    assert len(quick) < 100
    needed = every.visible_ns[2 * row + 1]
    assert quick.start_ns[len(quick) - 1] >= needed * (1 - 1e-9)
    if row == 999:
        assert quick.start_ns[len(quick) - 1] == approx(every.start_ns[len(every) - 1])


def marks(*ends, condition=None):
    steady = SteadyState()
    for row, end in enumerate(ends):
        steady.add(Mark([end, 7.0], condition, row))
    return steady


def test_a_period_has_to_repeat_three_times():
    assert marks(0, 10, 20).period() is None
    steady = marks(0, 10, 20, 30)
    assert steady.period() == 1
    assert steady.gains(1) == [10, 0]
    assert marks(5, 10, 20, 30).period() is None


def test_a_longer_period_is_found():
    ends = [0, 1, 10, 11, 20, 21, 30]
    assert marks(*ends[:-1]).period() is None
    assert marks(*ends).period() == 2
    assert marks(*ends).gains(2) == [10, 0]


def test_a_changing_condition_is_not_steady():
    steady = SteadyState()
    for turn in range(8):
        steady.add(Mark([10.0 * turn], turn, turn))
    assert steady.period() is None
