"""Two cores of a launch on one clock: they meet, share HBM, and are otherwise on their own."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.machine import TRN2, Reading
from nkisim.running.host_arrays import Spec
from nkisim.running.kernel import Kernel, run
from nkisim.timing import schedule, schedule_launch
from nkisim.timing.timeline import OTHER_CORE
from random_traces import broken_waits, pair
from timing_instructions import HBM, engine, instruction, loop_of, trace_of, whole

seeds = st.integers(0, 2**32)
FEW = settings(max_examples=15, deadline=None)
BARRIER_NS = 1500  # assumed, nothing is published
approx = pytest.approx


def core(number, *items):
    trace = trace_of(*items)
    trace.core = number
    barriers = [one for one in trace.instructions() if one.op == "core_barrier"]
    trace.meetings = {one.index: meeting for meeting, one in enumerate(barriers)}
    return trace


def work(columns):
    return instruction("memset", engine.vector, [whole((128, columns))])


def barrier(tile):
    return instruction("core_barrier", engine.gpsimd, [], [tile])


def test_both_leave_a_barrier_when_the_later_one_has_come():
    tiles = [whole((128, columns)) for columns in (256, 4096)]
    traces = []
    for number, tile in enumerate(tiles):
        fill = instruction("memset", engine.vector, [tile])
        after = instruction("memset", engine.gpsimd, [tile])
        traces.append(core(number, fill, barrier(tile), after))
    one, two = schedule_launch(traces, TRN2)
    arrived = (4096 + 150) / 0.96 + 60  # of the later core: zeros are visible, and a semaphore
    for found in (one, two):
        assert found.events.start_ns[1] == approx(arrived)
        assert found.events.visible_ns[1] == approx(arrived + BARRIER_NS)
        assert found.events.start_ns[2] == approx(arrived + BARRIER_NS)
    assert one.events.cause[1] == OTHER_CORE
    assert two.events.cause[1] == 0  # its own memset


def test_each_core_for_itself_knows_no_meeting():
    tile = whole((128, 256))
    trace = core(0, instruction("memset", engine.vector, [tile]), barrier(tile))
    assert schedule(trace, TRN2).makespan_ns == approx((256 + 150) / 0.96 + 60 + BARRIER_NS)


def loads(number, count):
    """Loads of 2 MiB in rows of 16 KiB: 32 KiB a descriptor queue are bound by the engines."""
    transfers = [
        instruction("dma_copy", engine.dma, [whole((128, 4096))], [whole((128, 4096), region=HBM)])
        for _ in range(count)
    ]
    return core(number, *transfers)


def test_two_cores_get_the_bandwidth_of_their_stack():
    """One core moves 16 x 23 B/ns at most; the stack gives 720 to both."""
    alone = schedule(loads(0, 40), TRN2)
    both = schedule_launch([loads(0, 40), loads(1, 40)], TRN2)
    total = sum(one.hbm_bytes for one in both)
    rate = total / max(one.makespan_ns for one in both)
    assert alone.hbm_gb_per_s < 16 * 23
    assert rate < 720
    assert rate > 0.93 * 720  # the rest is the start of the first transfer
    narrow = replace(TRN2, timing=replace(TRN2.timing, hbm_bytes_per_ns=360.0))
    slow = schedule_launch([loads(0, 40), loads(1, 40)], narrow)
    rate = total / max(one.makespan_ns for one in slow)
    assert 0.93 * 360 < rate < 360


def test_in_every_reading_the_stack_is_theirs():
    """Alone, the pessimistic reading leaves half of it to a neighbour; here the neighbour is us."""
    for reading in Reading:
        found = schedule_launch([loads(0, 40), loads(1, 40)], TRN2, reading)
        rate = sum(one.hbm_bytes for one in found) / max(one.makespan_ns for one in found)
        assert rate > 0.9 * 720


@given(seed=seeds, meetings=st.integers(0, 4))
@FEW
def test_hazards_hold_and_meetings_start_together(seed, meetings):
    traces = pair(seed, meetings)
    found = schedule_launch(traces, TRN2)
    starts = []
    for trace, one in zip(traces, found, strict=True):
        assert broken_waits(one, TRN2.timing.semaphore_ns) == []
        events = one.events
        starts.append(
            [
                events.start_ns[row]
                for row, i in enumerate(events.instructions)
                if i.index in trace.meetings
            ]
        )
    assert starts[0] == approx(starts[1])


@given(seed=seeds, meetings=st.integers(0, 3))
@FEW
def test_a_core_in_company_is_never_faster(seed, meetings):
    traces = pair(seed, meetings)
    for trace, one in zip(traces, schedule_launch(traces, TRN2), strict=True):
        assert one.makespan_ns >= schedule(trace, TRN2).makespan_ns * (1 - 1e-9)


@given(seed=seeds, meetings=st.integers(0, 3), trips=st.integers(1, 40))
@FEW
def test_loops_of_two_cores_take_what_all_their_iterations_take(seed, meetings, trips):
    traces = pair(seed, meetings, trips=trips)
    quick, every = (schedule_launch(traces, TRN2, extrapolate=how) for how in (True, False))
    for one, all_iterations in zip(quick, every, strict=True):
        assert one.makespan_ns == approx(all_iterations.makespan_ns, rel=0.01)
        assert one.executed_instructions == all_iterations.executed_instructions
        assert one.busy_ns == approx(all_iterations.busy_ns, rel=0.01)


def test_many_iterations_of_two_cores_are_left_out():
    traces = [core(number, loop_of(1000, work(256), work(512))) for number in (0, 1)]
    for one in schedule_launch(traces, TRN2):
        assert len(one.events) < 20
        assert one.executed_instructions == 2000


def test_loops_of_different_length_run_iteration_by_iteration():
    traces = [core(0, loop_of(30, work(256))), core(1, loop_of(10, work(256)), work(64))]
    found = schedule_launch(traces, TRN2)
    assert [one.executed_instructions for one in found] == [30, 11]
    for trace, one in zip(traces, found, strict=True):
        assert one.makespan_ns == approx(schedule(trace, TRN2).makespan_ns)


SLOWER = {
    "core_barrier_ns": 2.0,
    "dma_start_ns": 1.5,
    "hbm_bytes_per_ns": 0.3,
    "loop_iteration_ns": 3.0,
    "semaphore_ns": 2.0,
    "vector_ghz": 0.5,
}


@pytest.mark.parametrize("name", sorted(SLOWER))
@given(seed=seeds, trips=st.sampled_from([0, 3]))
@settings(max_examples=8, deadline=None)
def test_a_slower_constant_never_shortens_a_launch(name, seed, trips):
    """With the warm-up and the window off, as for one core."""
    timing = replace(TRN2.timing, pe_cold_rate=1.0, pe_quarter_rate=1.0, pe_half_rate=1.0)
    traces = pair(seed, 2, trips=trips)
    makespans = []
    for factor in (1.0, SLOWER[name]):
        changed = replace(timing, **{name: factor * getattr(timing, name)})
        found = schedule_launch(traces, replace(TRN2, timing=changed), extrapolate=False)
        makespans.append(max(one.makespan_ns for one in found))
    assert makespans[1] >= makespans[0] * (1 - 1e-12)


def test_a_real_launch_has_one_clock():
    """Core 1 works longer before they exchange halves; core 0 waits for it."""

    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        core_number = nl.program_id(0)
        mine = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
        theirs = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(mine, x[core_number])
        for _ in range(1 + 9 * core_number):
            nisa.tensor_tensor(mine, mine, mine, nl.add)
        nisa.sendrecv(mine, theirs, 1 - core_number, 1 - core_number, 0)
        nisa.dma_copy(out[core_number], theirs)
        return out

    launch = Kernel(kernel)[2]
    done = run(launch, Spec((2, 128, 512), "float32"), machine="trn2", values=False)
    one, two = schedule_launch(done.traces, done.machine)
    assert one.makespan_ns == approx(two.makespan_ns)
    alone = schedule(done.traces[0], done.machine).makespan_ns
    assert one.makespan_ns > alone + 8 * 2 * 512 / 0.96
