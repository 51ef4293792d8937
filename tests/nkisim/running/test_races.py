"""Races: conflicting accesses of two cores are told from ordered and disjoint ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.errors import RaceError
from nkisim.machine import TRN2
from nkisim.memory.placement import Memory
from nkisim.running.races import Interval, find_races
from nkisim.tensors.layout import MemoryRegion, layout_of
from nkisim.trace import Access
from two_cores import filled, launch, other, shared

HBM = MemoryRegion.shared_hbm
both_ways = pytest.mark.parametrize("values", [True, False])


def same_rows(x):
    nisa.dma_copy(shared()[4:8], filled((4, 6)))


def one_row_in_common(x):
    first = 8 * nl.program_id(0) - nl.program_id(0)
    nisa.dma_copy(shared()[first : first + 8], filled((8, 6)))


def read_before_the_other_wrote(x):
    out = shared()
    mine, theirs = 8 * nl.program_id(0), 8 * other()
    nisa.dma_copy(out[mine : mine + 8], filled((8, 6)))
    nisa.dma_copy(nl.ndarray((8, 6), "float32"), out[theirs : theirs + 8])


def writes_into_the_argument_that_the_other_reads(x):
    if nl.program_id(0) == 0:
        nisa.dma_copy(nl.ndarray((16, 6), "float32"), x)
    else:
        nisa.dma_copy(x[15:16, 5:6], filled((1, 1)))


def columns_that_meet_once(x):
    """Every 2nd and every 3rd column: column 3 (core 1) and 3 (core 0, from 1 on) is the same."""
    step = 2 + nl.program_id(0)
    first = 1 if nl.program_id(0) == 0 else 0
    count = len(range(first, 6, step))
    nisa.dma_copy(shared()[:, first:6:step], filled((16, count)))


def a_byte_of_an_element(x):
    out = shared()
    if nl.program_id(0) == 0:
        nisa.dma_copy(out[3:4, 2:3], filled((1, 1)))
    else:
        tile = nl.ndarray((1, 1), "uint8")
        nisa.memset(tile, 7)
        nisa.dma_copy(out.view("uint8")[3:4, 10:11], tile)


def loops_that_meet_in_their_last_row(x):
    """Rows 0, 2, ..., 14 and 1, 3, ..., 13, and then 14 again."""
    out, tile = shared(), filled((1, 6))

    def body(i):
        nisa.dma_copy(out[nl.ds(i, 1)], tile)

    nl.fori_loop(nl.program_id(0), 15, body, step=2)
    if nl.program_id(0) == 1:
        nisa.dma_copy(out[14:15], tile)


def barrier_too_early(x):
    out = shared()
    mine, theirs = 8 * nl.program_id(0), 8 * other()
    nisa.core_barrier(out, (0, 1))
    nisa.dma_copy(out[mine : mine + 8], filled((8, 6)))
    nisa.dma_copy(nl.ndarray((8, 6), "float32"), out[theirs : theirs + 8])


def reuse_without_a_second_barrier(x):
    out = shared()
    mine, theirs = 8 * nl.program_id(0), 8 * other()
    nisa.dma_copy(out[mine : mine + 8], filled((8, 6)))
    nisa.core_barrier(out, (0, 1))
    nisa.dma_copy(nl.ndarray((8, 6), "float32"), out[theirs : theirs + 8])
    nisa.dma_copy(out[mine : mine + 8], filled((8, 6)))


RACY = [
    one_row_in_common,
    read_before_the_other_wrote,
    writes_into_the_argument_that_the_other_reads,
    columns_that_meet_once,
    a_byte_of_an_element,
    loops_that_meet_in_their_last_row,
    barrier_too_early,
    reuse_without_a_second_barrier,
]


@both_ways
@pytest.mark.parametrize("kernel", RACY)
def test_conflicts_are_reported(kernel, values):
    with pytest.raises(RaceError, match=r"core 0 (.|\n)* and core 1 ") as refusal:
        launch(kernel, values=values)
    assert "between two meetings of the cores" in refusal.value.limit
    assert "nisa.core_barrier" in refusal.value.remedy


def test_equal_writes_of_different_values_are_told_apart_by_the_values():
    """A run without values takes the same instruction on the same bytes for the same values."""
    with pytest.raises(RaceError, match=r"writes bytes 96..191"):
        launch(same_rows)
    assert launch(same_rows, values=False).races == ()


def test_a_report_names_tensor_instructions_and_bytes():
    def kernel(x):
        nisa.dma_copy(shared(name="out")[4:8], filled((4, 6)))

    expected = (
        "'out': core 0 writes bytes 96..191 in dma_copy (instruction 1)"
        " and core 1 writes bytes 96..191 in dma_copy (instruction 1)"
    )
    with pytest.raises(RaceError) as refusal:
        launch(kernel)
    assert str(refusal.value).startswith("1 unordered conflicting accesses of two cores")
    assert expected in str(refusal.value)


def disjoint_halves(x):
    first = 8 * nl.program_id(0)
    nisa.dma_copy(shared()[first : first + 8], filled((8, 6)))


def odd_and_even_columns(x):
    nisa.dma_copy(shared()[:, nl.program_id(0) :: 2], filled((16, 3)))


def halves_of_every_element(x):
    first = 2 * nl.program_id(0)
    tile = nl.ndarray((16, 12), "uint8")
    nisa.memset(tile, 1 + nl.program_id(0))
    bytes_of = shared().view("uint8").reshape((16, 6, 4))
    nisa.dma_copy(bytes_of[:, :, first : first + 2], tile)


def interleaved_loops(x):
    """Rows 4 i + 2 c and the next, with windows of 2 rows and a step of 4."""
    out, tile = shared(), filled((2, 6))

    def body(i):
        nisa.dma_copy(out[nl.ds(i, 2)], tile)

    nl.fori_loop(2 * nl.program_id(0), 16, body, step=4)


def everybody_reads(x):
    nisa.dma_copy(nl.ndarray((16, 6), "float32"), x)
    nisa.dma_copy(nl.ndarray((16, 6), "float32"), x)


def write_barrier_read(x):
    out = shared()
    mine, theirs = 8 * nl.program_id(0), 8 * other()
    nisa.dma_copy(out[mine : mine + 8], filled((8, 6)))
    nisa.core_barrier(out, (0, 1))
    nisa.dma_copy(nl.ndarray((8, 6), "float32"), out[theirs : theirs + 8])


def sendrecv_orders_as_well(x):
    out = shared()
    tile, received = filled((8, 6)), nl.ndarray((8, 6), "float32")
    mine, theirs = 8 * nl.program_id(0), 8 * other()
    nisa.dma_copy(out[mine : mine + 8], tile)
    nisa.sendrecv(tile, received, other(), other(), pipe_id=0)
    nisa.dma_copy(received, out[theirs : theirs + 8])


def private_scratch(x):
    scratch = nl.ndarray((16, 6), "float32", nl.private_hbm)
    nisa.dma_copy(scratch, filled((16, 6)))
    nisa.dma_copy(nl.ndarray((16, 6), "float32"), scratch)


def the_same_work_twice(x):
    """A kernel that knows nothing of cores: both write the same, and read it back."""
    out, tile = shared(), nl.ndarray((16, 6), "float32")
    nisa.dma_copy(tile, x)
    nisa.dma_copy(out, tile)
    nisa.dma_copy(nl.ndarray((16, 6), "float32"), out)


CLEAN = [
    disjoint_halves,
    odd_and_even_columns,
    halves_of_every_element,
    interleaved_loops,
    everybody_reads,
    write_barrier_read,
    sendrecv_orders_as_well,
    private_scratch,
    the_same_work_twice,
]


@both_ways
@pytest.mark.parametrize("kernel", CLEAN)
def test_ordered_and_disjoint_accesses_are_not_races(kernel, values):
    assert launch(kernel, values=values).races == ()


def test_both_cores_contribute_to_a_strided_result():
    def kernel(x):
        out = shared()
        odd_and_even = out[:, nl.program_id(0) :: 2]
        nisa.dma_copy(odd_and_even, filled((16, 3)))
        return out

    assert np.array_equal(launch(kernel).outputs, np.tile(np.float32([1, 2]), (16, 3)))


def test_after_a_barrier_a_core_sees_what_the_other_wrote():
    def kernel(x):
        written, out = shared(name="written"), shared(name="out")
        mine, theirs = 8 * nl.program_id(0), 8 * other()
        nisa.dma_copy(written[mine : mine + 8], filled((8, 6)))
        nisa.core_barrier(written, (0, 1))
        tile = nl.ndarray((8, 6), "float32")
        nisa.dma_copy(tile, written[theirs : theirs + 8])
        nisa.dma_copy(out[mine : mine + 8], tile)
        return out

    assert launch(kernel).outputs[:, 0].tolist() == [2] * 8 + [1] * 8


PATTERNS = st.lists(st.tuples(st.integers(-3, 6), st.integers(1, 4)), max_size=3)


@st.composite
def touches(draw):
    """Up to 5 accesses of one core to a tensor of 64 bytes; the last may be a fence."""
    found = []
    for _ in range(draw(st.integers(0, 5))):
        dtype, size = draw(st.sampled_from([("float32", 4), ("uint8", 1)]))
        pattern = draw(PATTERNS)
        step, trips = draw(st.sampled_from([(0, 1), (0, 1), (1, 3), (5, 2), (-2, 3)]))
        steps = [*pattern, (step, trips)]
        low = sum(min(s, 0) * (n - 1) for s, n in steps)
        high = sum(max(s, 0) * (n - 1) for s, n in steps)
        room = 64 // size - 1 - high + low
        if room >= 0:
            offset = draw(st.integers(0, room)) - low
            place = (dtype, tuple(pattern), offset, step, trips)
            label = draw(st.sampled_from(["copy (1)", "copy (2)"]))
            kind = draw(st.sampled_from(["read", "write", "write", "fence"]))
            found += [(*place, False, label)] * (kind != "write")
            found += [(*place, True, label)] * (kind != "read")
    return found


def interval_of(described, storage):
    interval = Interval()
    for dtype, pattern, offset, step, trips, writes, label in described:
        shape = tuple(n for _, n in pattern) or (1,)
        strides = tuple(s for s, _ in pattern) or (1,)
        access = Access(storage.allocation, layout_of(HBM, dtype, shape, strides), offset, step, 0)
        interval.add(storage, access, trips, label, writes=writes)
    return interval


def bytes_of(described):
    dtype, pattern, offset, step, trips, _, _ = described
    size = {"float32": 4, "uint8": 1}[dtype]
    counts = [n for _, n in pattern] + [trips]
    strides = [s for s, _ in pattern] + [step]
    for index in np.ndindex(*counts):
        first = (offset + sum(i * s for i, s in zip(index, strides, strict=True))) * size
        yield from range(first, first + size)


def races_byte_by_byte(cores):
    """Pairs (position on core 0, position on core 1) that conflict in some byte."""
    found = set()
    for byte in range(64):
        here = [[i for i, one in enumerate(core) if byte in set(bytes_of(one))] for core in cores]
        wrote = [[i for i in mine if core[i][5]] for mine, core in zip(here, cores, strict=True)]
        real = [
            [i for i in w if not is_fence(core, i)] for w, core in zip(wrote, cores, strict=True)
        ]
        acts = [[core[i][:5] + core[i][6:] for i in r] for r, core in zip(real, cores, strict=True)]
        equal = bool(wrote[0] and wrote[1]) and acts[0] == acts[1]
        if not equal:
            found |= {(a, b) for a in wrote[0] for b in wrote[1]}
        for side in (0, 1):
            for read in set(here[side]) - set(wrote[side]):
                own = any(write < read for write in real[side])
                if not (equal and own and len(real[1 - side]) == 1):
                    pairs = {(read, write) for write in wrote[1 - side]}
                    found |= pairs if side == 0 else {(b, a) for a, b in pairs}
    return found


def is_fence(core, i):
    """A write right after a read of the same view in the same instruction."""
    before, here = core[i - 1], core[i]
    return i > 0 and here[5] and not before[5] and before[:5] == here[:5] and before[6] == here[6]


@settings(deadline=None, max_examples=60)
@given(touches(), touches(), st.booleans())
def test_races_are_those_of_every_byte(first, second, twin):
    """Without values, against going through the bytes of the tensor one by one."""
    if twin:
        second = first
    memory = Memory(TRN2, 0, with_values=False, precise=True)
    storage = memory.allocate((64,), "uint8", HBM)
    intervals = interval_of(first, storage), interval_of(second, storage)
    words = [[str(touch) for touch in interval.touches] for interval in intervals]
    expected = {(words[0][a], words[1][b]) for a, b in races_byte_by_byte((first, second))}
    found = find_races(*intervals)
    assert {(race.first, race.second) for race in found} == expected
    assert len(set(found)) == len(found)


def test_large_tensors_are_compared_by_runs():
    """Two interleaved writers of 2**40 bytes, in pieces of 2**30: no byte is looked at alone."""
    storage = Memory(TRN2, 0, with_values=False, precise=True).allocate((2**40,), "uint8", HBM)

    def writes(first, length):
        interval = Interval()
        layout = layout_of(HBM, "uint8", (512, length), (2**31, 1))
        interval.add(storage, Access(storage.allocation, layout, first), 1, "copy", writes=True)
        return interval

    assert find_races(writes(0, 2**30), writes(2**30, 2**30)) == []
    assert len(find_races(writes(0, 2**30 + 1), writes(2**30, 2**30))) == 1


def test_different_tensors_never_conflict():
    memory = Memory(TRN2, 0, with_values=False, precise=True)
    intervals = []
    for _ in range(2):
        storage = memory.allocate((64,), "uint8", HBM)
        intervals.append(interval_of([("uint8", ((1, 64),), 0, 0, 1, True, "copy")], storage))
    assert find_races(*intervals) == []
