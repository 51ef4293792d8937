"""What holds for every trace: bounds, monotony, and hazards as an independent replay sees them."""

from dataclasses import fields, replace
from importlib import import_module
from itertools import pairwise
from math import ceil
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nkisim.machine import MACHINES, TRN2, Reading, Timing
from nkisim.timing import schedule
from nkisim.timing.costs import cost_of
from random_traces import broken_waits, straight, with_loop
from repetition import examples, few
from timing_instructions import HBM, engine, instruction, trace_of, whole

seeds = st.integers(0, 2**32)
FEW = examples(32)
IN_ORDER, WINDOW = 1.0, 8.0


def machine(**timing):
    return replace(TRN2, timing=replace(TRN2.timing, **timing))


def alone_ns(one, on):
    """How long an instruction takes by itself, with all it may have to wait for once others ran.

    Those are a semaphore and, on the Tensor engine, the gap between two matmuls. Loading weights or
    a table and a cold array are part of running alone.
    """
    timing = on.read(Reading.default).timing
    gap = cost_of(one, on.read(Reading.default)).gap_ns
    return schedule(trace_of(one), on).makespan_ns + timing.semaphore_ns + gap


@few(3)
@pytest.mark.parametrize("window", [IN_ORDER, WINDOW])
@pytest.mark.parametrize("name", sorted(MACHINES))
@given(seed=seeds)
@FEW
def test_the_busiest_engine_and_the_sum_of_all_bound_the_makespan(name, window, seed):
    on = replace(MACHINES[name], timing=replace(MACHINES[name].timing, reorder_window=window))
    trace = straight(seed, 40)
    found = schedule(trace, on)
    indices = [one.index for one in trace.instructions()]
    total = sum(alone_ns(one, on) for one in trace.instructions())
    assert indices == list(range(40))
    assert max(found.busy_ns.values()) <= found.makespan_ns * (1 + 1e-9)
    assert found.makespan_ns <= total * (1 + 1e-9)


@given(seed=seeds, trips=st.integers(1, 5))
@FEW
def test_the_bounds_hold_for_loops_with_their_cost(seed, trips):
    trace = with_loop(seed, trips)
    found = schedule(trace, TRN2)
    loop = next(item for item in trace.items if not hasattr(item, "op"))
    counted = [(one, trips if one.loop == loop.number else 1) for one in trace.instructions()]
    total = sum(alone_ns(one, TRN2) * times for one, times in counted)
    assert max(found.busy_ns.values()) <= found.makespan_ns
    assert found.makespan_ns <= total + trips * TRN2.timing.loop_iteration_ns


# Numbers that make things faster when they grow.
FASTER = {
    "dma_bytes_per_ns",
    "dma_compute_rate",
    "dma_engines",
    "dma_issue_queues",
    "dma_transpose_4_byte_rate",
    "dma_transpose_rate",
    "dma_transpose_sbuf_rate",
    "gpsimd_ghz",
    "hbm_bytes_per_ns",
    "pe_busy_rate",
    "pe_ghz",
    "pe_half_rate",
    "pe_quarter_rate",
    "scalar_ghz",
    "vector_ghz",
    "wide_stride_bytes",
}
# Questions answered by yes or no: the faster answer and the slower one.
FLAGS = {
    "column_tiles_parallel": (1.0, 0.0),
    "dma_partition_bound": (0.0, 1.0),
    "dma_queue_per_direction": (1.0, 0.0),
    "psum_port_shared": (0.0, 1.0),
    "row_tiles_parallel": (1.0, 0.0),
}
# Not speeds: how a run is cut up, how far a compiler looks ahead, and the warm-up, which is off.
SHAPE = {"dma_packet_bytes", "reorder_window", "pe_cold_rate", "pe_warm_ns", "pe_cold_idle_ns"}


def numbers():
    """The names of all constants that are neither a word nor a fact of the generation."""
    values = {field.name: getattr(TRN2.timing, field.name) for field in fields(Timing)}
    return {name for name, value in values.items() if type(value) not in {bool, str}}


def fast_and_slow(name, factor):
    if name in FLAGS:
        return FLAGS[name]
    value = getattr(TRN2.timing, name)
    changed = value / factor if name in FASTER else value * factor
    if isinstance(value, int):
        changed = max(1, int(changed)) if name in FASTER else ceil(changed)
    return value, changed


@few(20)
@pytest.mark.parametrize("name", sorted(numbers() - SHAPE))
@given(seed=seeds, factor=st.sampled_from([1.01, 1.5, 2.0, 7.0]))
@settings(max_examples=5, deadline=None)
def test_a_slower_constant_never_shortens_the_makespan(name, seed, factor):
    """Exceptions: the array's warm-up, its rate by how much of it works, a reordering window.

    A cold array looks at idle time: a slower producer may leave a gap just too long, or merge two
    gaps into one, and so add or spare a restart. A tile runs faster beside another one, and a
    slower producer may bring the two together. A window is greedy: being late, it may come upon
    a better order. All are switched off here.
    """
    off = {"pe_cold_rate": 1.0, "reorder_window": IN_ORDER}
    off |= {rate: 1.0 for rate in ("pe_quarter_rate", "pe_half_rate") if rate != name}
    trace = straight(seed, 40)
    fast, slow = (
        schedule(trace, machine(**off, **{name: value})).makespan_ns
        for value in fast_and_slow(name, factor)
    )
    assert slow >= fast * (1 - 1e-12)


def test_the_lists_of_constants_name_constants():
    assert numbers() >= FASTER | SHAPE | set(FLAGS)


@pytest.mark.parametrize("window", [IN_ORDER, WINDOW])
@given(seed=seeds)
@FEW
def test_hazards_are_respected(window, seed):
    found = schedule(straight(seed, 60), machine(reorder_window=window))
    assert broken_waits(found, TRN2.timing.semaphore_ns) == []


@pytest.mark.parametrize("window", [IN_ORDER, WINDOW])
@given(seed=seeds, trips=st.integers(1, 6))
@FEW
def test_hazards_are_respected_across_iterations(window, seed, trips):
    on = machine(reorder_window=window)
    found = schedule(with_loop(seed, trips, body=8), on, extrapolate=False)
    assert broken_waits(found, TRN2.timing.semaphore_ns) == []


@given(seed=seeds)
@FEW
def test_hazards_are_respected_where_a_long_stream_is_cut(seed):
    on = machine(reorder_window=WINDOW)
    with patch.object(import_module("nkisim.timing.core_schedule"), "_CHUNK", 7):
        found = schedule(straight(seed, 60), on)
    assert broken_waits(found, TRN2.timing.semaphore_ns) == []
    assert found.executed_instructions == 60


def test_the_replay_finds_a_schedule_that_is_too_early():
    tile, other = whole((4, 4)), whole((4, 4))
    memset = instruction("memset", engine.gpsimd, [tile])
    found = schedule(
        trace_of(memset, instruction("tensor_copy", engine.vector, [other], [tile])), TRN2
    )
    assert broken_waits(found, 60.0) == []
    found.events.start_ns[1] -= 1.0
    assert len(broken_waits(found, 60.0)) == 1
    found.events.start_ns[1] += 1.0
    assert len(broken_waits(found, 61.0)) == 1


@pytest.mark.parametrize("window", [IN_ORDER, WINDOW])
@given(seed=seeds)
@FEW
def test_an_engine_runs_one_instruction_at_a_time(window, seed):
    events = schedule(straight(seed, 60), machine(reorder_window=window)).events
    for where in (engine.tensor, engine.vector, engine.scalar, engine.gpsimd):
        rows = [row for row, one in enumerate(events.instructions) if one.engine is where]
        starts = [events.start_ns[row] for row in rows]
        if window == IN_ORDER or where is engine.tensor:
            assert starts == sorted(starts)
        rows.sort(key=lambda row: events.start_ns[row])
        for before, after in pairwise(rows):
            side_by_side = "tile_size" in dict(events.instructions[after].options)
            assert side_by_side or events.start_ns[after] >= events.busy_end_ns[before] - 1e-6


@given(seed=seeds)
@FEW
def test_a_cause_is_what_an_instruction_waited_for(seed):
    events = schedule(straight(seed, 60), TRN2).events
    caused = [row for row in range(len(events)) if events.cause[row] >= 0]
    assert caused
    for row in caused:
        cause = events.cause[row]
        ends = {events.visible_ns[cause], events.released_ns[cause]}
        assert cause < row
        assert any(
            events.start_ns[row] == pytest.approx(end + hop) for end in ends for hop in (0, 60)
        )


def test_a_window_never_looks_past_its_size():
    """One slow load, then copies that need it, then memsets that need nothing."""
    slow, tiles = whole((128, 512)), [whole((128, 64)) for _ in range(6)]
    load = instruction("dma_copy", engine.dma, [slow], [whole((128, 512), region=HBM)])
    needy = [
        instruction("tensor_copy", engine.vector, [whole((128, 512))], [slow]) for _ in range(3)
    ]
    free = [instruction("memset", engine.vector, [tile]) for tile in tiles]
    trace = trace_of(load, *needy, *free)
    for window, early in ((1.0, 0), (3.0, 0), (4.0, 6), (64.0, 6)):
        events = schedule(trace, machine(reorder_window=window)).events
        assert sum(events.start_ns[row] < events.visible_ns[0] for row in range(4, 10)) == early


def test_a_named_order_is_kept():
    first, second = whole((128, 64)), whole((128, 64))
    one = instruction("memset", engine.gpsimd, [first])
    two = instruction("memset", engine.vector, [second])
    free = schedule(trace_of(one, two), TRN2).events
    assert free.start_ns[1] == 0
    two.after = (0,)
    for window in (IN_ORDER, WINDOW):
        events = schedule(trace_of(one, two), machine(reorder_window=window)).events
        assert events.start_ns[1] == pytest.approx(events.visible_ns[0] + 60)
