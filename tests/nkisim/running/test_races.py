"""Races: conflicting accesses of two cores are told from ordered and disjoint ones."""

import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.errors import NkiValidationError, RaceError
from nkisim.running.kernel import Kernel, run
from two_cores import filled, launch, other, shared

both_ways = pytest.mark.parametrize("values", [True, False])


def tile_of(x):
    tile = nl.ndarray((16, 6), "float32")
    nisa.dma_copy(tile, x)
    return tile


def same_rows_of_other_values(x):
    nisa.dma_copy(shared()[4:8], filled((4, 6)))


def same_rows_of_other_rows(x):
    """Equal data would make both cores write the same."""
    tile, first = nl.ndarray((4, 6), "float32"), 4 * nl.program_id(0)
    nisa.dma_copy(tile, x[first : first + 4])
    nisa.dma_copy(shared()[4:8], tile)


def same_rows_by_other_immediates(x):
    tile = tile_of(x)
    nisa.tensor_scalar(tile, tile, nl.multiply, 1.0 + nl.program_id(0))
    nisa.dma_copy(shared(), tile)


def zeroed_and_then_summed(x):
    """Each core may see the zeros of the other after its own sum."""
    out, tile = shared(), nl.ndarray((16, 6), "float32")
    nisa.memset(tile, 0)
    nisa.dma_copy(out, tile)
    nisa.dma_copy(tile, x)
    nisa.dma_copy(out, tile)
    nisa.dma_copy(nl.ndarray((16, 6), "float32"), out)


def in_place(x):
    tile = tile_of(x)
    nisa.tensor_scalar(tile, tile, nl.add, 1.0)
    nisa.dma_copy(x, tile)


def barrier_on_another_tensor(x):
    out, another = shared(name="out"), shared(name="another")
    mine, theirs = 8 * nl.program_id(0), 8 * other()
    nisa.dma_copy(out[mine : mine + 8], filled((8, 6)))
    nisa.core_barrier(another, (0, 1))
    nisa.dma_copy(nl.ndarray((8, 6), "float32"), out[theirs : theirs + 8])


def barrier_on_half_of_the_tensor(x):
    out = shared()
    mine, theirs = 8 * nl.program_id(0), 8 * other()
    nisa.dma_copy(out[mine : mine + 8], filled((8, 6)))
    nisa.core_barrier(out[0:8], (0, 1))
    nisa.dma_copy(nl.ndarray((8, 6), "float32"), out[theirs : theirs + 8])


def small_sendrecv(x):
    """The tiles that are exchanged have nothing to do with what was written."""
    out = shared()
    small, received = filled((1, 1)), nl.ndarray((1, 1), "float32")
    mine, theirs = 8 * nl.program_id(0), 8 * other()
    nisa.dma_copy(out[mine : mine + 8], filled((8, 6)))
    nisa.sendrecv(small, received, other(), other(), pipe_id=0)
    nisa.dma_copy(nl.ndarray((8, 6), "float32"), out[theirs : theirs + 8])


def iterations_without_a_second_barrier(x):
    """What a core writes in an iteration, the other may still read in the iteration before."""
    out = shared()
    mine, theirs = 8 * nl.program_id(0), 8 * other()

    def body(i):
        nisa.dma_copy(out[mine : mine + 8], filled((8, 6)))
        nisa.core_barrier(out, (0, 1))
        nisa.dma_copy(nl.ndarray((8, 6), "float32"), out[theirs : theirs + 8])

    nl.fori_loop(0, 3, body)


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
    """Rows 0, 2, ..., 14 and 1, 3, ..., 15, and then 14 again."""
    out, tile = shared(), filled((1, 6))

    def body(i):
        nisa.dma_copy(out[nl.ds(i, 1)], tile)

    nl.fori_loop(nl.program_id(0), 16, body, step=2)
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
    same_rows_of_other_values,
    same_rows_of_other_rows,
    same_rows_by_other_immediates,
    zeroed_and_then_summed,
    in_place,
    barrier_on_another_tensor,
    barrier_on_half_of_the_tensor,
    small_sendrecv,
    iterations_without_a_second_barrier,
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
    assert "a core_barrier orders accesses to its data" in refusal.value.limit
    assert "nisa.core_barrier" in refusal.value.remedy


@pytest.mark.parametrize("kernel", RACY)
def test_the_same_races_are_found_whatever_the_data_are(kernel):
    """Random data, equal data, zeros, and none at all."""
    rng = np.random.default_rng(0)
    shape = (16, 6)
    data = [rng.standard_normal(shape), np.ones(shape), np.zeros(shape)]
    found = [run(Kernel(kernel)[2], np.float32(x), machine="trn2", races="report") for x in data]
    found.append(run(Kernel(kernel)[2], np.float32(data[0]), values=False, races="report"))
    assert found[0].races
    if kernel not in (loops_that_meet_in_their_last_row, iterations_without_a_second_barrier):
        assert found[3].races == found[0].races
    assert found[1].races == found[2].races == found[0].races


def test_races_can_be_reported_instead_of_raised():
    x = np.zeros((16, 6), np.float32)
    found = run(Kernel(one_row_in_common)[2], x, machine="trn2", races="report")
    assert [race.tensor for race in found.races] == ["shared_0"]
    line = one_row_in_common.__code__.co_firstlineno + 2
    expected = f"writes bytes 0..191 in dma_copy (instruction 1, test_races.py:{line})"
    assert found.races[0].first == expected
    assert found.races[0].place.line == line
    assert len(found.traces) == 2
    with pytest.raises(NkiValidationError, match="races='print'"):
        run(Kernel(one_row_in_common)[2], x, races="print")


def test_a_report_names_tensor_instructions_and_bytes():
    def kernel(x):
        nisa.dma_copy(shared(name="out")[4:8], filled((4, 6)))

    line = kernel.__code__.co_firstlineno + 1
    where = f"writes bytes 96..191 in dma_copy (instruction 1, test_races.py:{line})"
    expected = f"'out': core 0 {where} and core 1 {where}"
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


def sendrecv_orders_what_its_tiles_come_from_and_lead_to(x):
    """Each core reads rows that the other overwrites with what it received for them."""
    tile, received = nl.ndarray((8, 6), "float32"), nl.ndarray((8, 6), "float32")
    mine, theirs = 8 * nl.program_id(0), 8 * other()
    nisa.dma_copy(tile, x[theirs : theirs + 8])
    nisa.sendrecv(tile, received, other(), other(), pipe_id=0)
    nisa.dma_copy(x[mine : mine + 8], received)


def a_barrier_on_the_engine_of_what_follows(x):
    """The barrier is on another tensor; what was read before it, and written after it, depend."""
    flag, tile = shared((1, 1), "flag"), nl.ndarray((8, 6), "float32")
    mine, theirs = 8 * nl.program_id(0), 8 * other()
    nisa.dma_copy(tile, x[theirs : theirs + 8])
    nisa.tensor_scalar(tile, tile, nl.multiply, 2.0, engine=nisa.engine.vector)
    nisa.core_barrier(flag, (0, 1), engine=nisa.engine.vector)
    nisa.memset(tile, 1.0, engine=nisa.engine.vector)
    nisa.dma_copy(x[mine : mine + 8], tile)


def barriers_on_the_parts_that_are_used(x):
    out = shared()
    mine, theirs = 8 * nl.program_id(0), 8 * other()
    nisa.dma_copy(out[mine : mine + 8], filled((8, 6)))
    nisa.core_barrier(out[0:8], (0, 1))
    nisa.core_barrier(out[8:16], (0, 1))
    nisa.dma_copy(nl.ndarray((8, 6), "float32"), out[theirs : theirs + 8])


def iterations_with_two_barriers(x):
    out = shared()
    mine, theirs = 8 * nl.program_id(0), 8 * other()

    def body(i):
        nisa.dma_copy(out[mine : mine + 8], filled((8, 6)))
        nisa.core_barrier(out, (0, 1))
        nisa.dma_copy(nl.ndarray((8, 6), "float32"), out[theirs : theirs + 8])
        nisa.core_barrier(out, (0, 1))

    nl.fori_loop(0, 3, body)


def rows_of_a_iteration_and_barriers(x):
    """Iteration i: core 0 writes row i, then core 1 reads it."""
    out, tile = shared(), filled((1, 6))

    def body(i):
        if nl.program_id(0) == 0:
            nisa.dma_copy(out[nl.ds(i, 1)], tile)
        nisa.core_barrier(out, (0, 1))
        if nl.program_id(0) == 1:
            nisa.dma_copy(tile, out[nl.ds(i, 1)])

    nl.fori_loop(0, 16, body)


def some_work_twice(x):
    """Cores differ before and after, and write the same row norms to a scratch tensor between."""
    out, norms = shared(name="out"), shared((16, 1), name="norms")
    own = filled((16, 6))
    if nl.program_id(0) == 0:
        nisa.tensor_copy(own, filled((16, 6)))
    tile, total = tile_of(x), nl.ndarray((16, 1), "float32")
    nisa.tensor_reduce(total, nl.add, tile, axis=1)
    nisa.dma_copy(norms, total)
    nisa.dma_copy(nl.ndarray((16, 1), "float32"), norms)
    nisa.dma_copy(out[:, nl.program_id(0) :: 2], own[:, 0:3])


def closing_fence(x):
    """Both cores write the same, and copy it onto itself."""
    out = shared()
    nisa.dma_copy(out, tile_of(x))
    nisa.dma_copy(out, out)


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
    sendrecv_orders_what_its_tiles_come_from_and_lead_to,
    a_barrier_on_the_engine_of_what_follows,
    barriers_on_the_parts_that_are_used,
    iterations_with_two_barriers,
    rows_of_a_iteration_and_barriers,
    some_work_twice,
    closing_fence,
    private_scratch,
    the_same_work_twice,
]


@both_ways
@pytest.mark.parametrize("kernel", CLEAN)
def test_ordered_and_disjoint_accesses_are_not_races(kernel, values):
    assert launch(kernel, values=values).races == ()


def at_rows_that_are_data(x, by_row):
    """Each core writes one row, whose number it loads, the same on both."""
    numbers = nl.ndarray((1, 1), "int32")
    nisa.memset(numbers, 3)
    register = nisa.register_alloc()
    nisa.register_load(register, numbers)
    out = shared()
    view = out.vector_select(0, numbers) if by_row else out[nl.ds(register, 1)]
    nisa.dma_copy(view, filled((1, 6)))


@pytest.mark.parametrize("by_row", [True, False])
def test_places_that_are_data_are_known_to_runs_with_values_only(by_row):
    with pytest.raises(RaceError, match=r"'shared_0': core 0 writes"):
        launch(lambda x: at_rows_that_are_data(x, by_row))
    assert launch(lambda x: at_rows_that_are_data(x, by_row), values=False).races == ()


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


def test_traces_say_who_meets_whom():
    def kernel(x):
        tile, received = filled((8, 6)), nl.ndarray((8, 6), "float32")
        if nl.program_id(0) == 1:
            nisa.memset(received, 0.0)
        nisa.core_barrier(x, (0, 1))
        nisa.sendrecv(tile, received, other(), other(), pipe_id=0)

        def body(i):
            nisa.core_barrier(x, (0, 1))

        nl.fori_loop(0, 3, body)
        nisa.core_barrier(x, (0, 1))

    found = [trace.meetings for trace in launch(kernel).traces]
    assert found == [{1: 0, 2: 1, 3: 2, 4: 5}, {2: 0, 3: 1, 4: 2, 5: 5}]
    assert [trace.meetings for trace in launch(kernel, values=False).traces] == found
