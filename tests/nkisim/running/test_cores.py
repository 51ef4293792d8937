"""CorePair: meetings, turns, deadlocks, errors of one core, and tensors both cores share."""

import threading

import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.errors import NkiValidationError
from nkisim.running.cores import CorePair
from two_cores import filled, launch, shared, within_time

both_ways = pytest.mark.parametrize("values", [True, False])


def ends_early(x):
    if nl.program_id(0) == 0:
        nisa.core_barrier(shared(), (0, 1))


def ends_early_the_other_way(x):
    if nl.program_id(0) == 1:
        nisa.core_barrier(shared(), (0, 1))


def one_barrier_each(x):
    nisa.core_barrier(x, (0, 1))


def one_barrier_more(x):
    for _ in range(3 + nl.program_id(0)):
        nisa.core_barrier(x, (0, 1))


@both_ways
@pytest.mark.parametrize(
    ("kernel", "waiting"), [(ends_early, 0), (ends_early_the_other_way, 1), (one_barrier_more, 1)]
)
def test_a_core_that_waits_for_one_that_has_ended_is_reported(kernel, waiting, values):
    with pytest.raises(NkiValidationError) as refusal:
        launch(kernel, values=values)
    assert f"core {waiting} waits in core_barrier, and core {1 - waiting} has ended" in str(
        refusal.value
    )
    assert refusal.value.limit == "both cores take part in every barrier and sendrecv"


@both_ways
@pytest.mark.parametrize("first", [0, 1])
def test_cores_that_wait_in_different_meetings_are_reported(first, values):
    def kernel(x):
        tile = filled((4, 6))
        if nl.program_id(0) == first:
            nisa.core_barrier(x, (0, 1))
        else:
            nisa.sendrecv(tile, nl.ndarray((4, 6), "float32"), first, first, pipe_id=3)

    with pytest.raises(NkiValidationError, match=r"waits in .* while core 0 waits in") as refusal:
        launch(kernel, values=values)
    assert "core_barrier" in str(refusal.value)
    assert "sendrecv with pipe_id=3" in str(refusal.value)
    assert refusal.value.limit == "both cores meet in the same instruction"


@pytest.mark.parametrize("core", [0, 1])
@pytest.mark.parametrize("meetings", [0, 1, 2])
def test_an_error_of_one_core_ends_both(core, meetings):
    """Before the first meeting, between two, and while the other core waits in the next one."""

    def kernel(x):
        for meeting in range(3):
            if meeting == meetings and nl.program_id(0) == core:
                raise ZeroDivisionError(f"core {core} at {meeting}")
            nisa.core_barrier(x, (0, 1))
            passed.append((nl.program_id(0), meeting))

    passed = []
    with pytest.raises(ZeroDivisionError, match=f"core {core} at {meetings}"):
        launch(kernel)
    assert max((meeting for _, meeting in passed), default=-1) == meetings - 1


def test_a_kernel_cannot_swallow_the_end_of_its_partner():
    """The core that waits is ended by something `except Exception` does not catch."""

    def kernel(x):
        if nl.program_id(0) == 1:
            raise ZeroDivisionError("broken")
        try:
            nisa.core_barrier(x, (0, 1))
        except Exception:  # noqa: BLE001 (the point of the test)
            caught.append(True)

    caught = []
    with pytest.raises(ZeroDivisionError, match="broken"):
        launch(kernel)
    assert caught == []


def test_no_thread_is_left_behind():
    before = threading.active_count()
    launch(one_barrier_each)
    for kernel in (ends_early, one_barrier_more):
        with pytest.raises(NkiValidationError, match="has ended"):
            launch(kernel)
    assert threading.active_count() == before


def test_cores_take_turns_and_answers_arrive():
    pair = CorePair()
    order = []

    def program(core):
        def steps():
            got = []
            for turn in range(4):
                order.append((core, turn))
                got.append(pair.meet(core, f"turn {turn}", 10 * core + turn))
            return got

        return steps

    results = within_time(lambda: pair.run([program(0), program(1)]))
    assert results == [[10, 11, 12, 13], [0, 1, 2, 3]]
    for core in (0, 1):
        assert [turn for who, turn in order if who == core] == [0, 1, 2, 3]
    again = CorePair()
    pair, first_order, order = again, order, []
    within_time(lambda: pair.run([program(0), program(1)]))
    assert order == first_order, "the order of turns is always the same"


def allocated_apart(shape=(4, 6), dtype="float32", names=("t", "t"), values=False):
    """Core 0 allocates (4, 6) fp32 under the first name, core 1 as told under the second."""

    def kernel(x):
        if nl.program_id(0) == 0:
            nl.ndarray((4, 6), "float32", nl.shared_hbm, name=names[0])
        else:
            nl.ndarray(shape, dtype, nl.shared_hbm, name=names[1])

    return launch(kernel, values=values)


@both_ways
@pytest.mark.parametrize(
    ("shape", "dtype"), [((4, 7), "float32"), ((6, 4), "float32"), ((4, 6), "bfloat16")]
)
@pytest.mark.parametrize("names", [("t", "t"), (None, None)])
def test_both_cores_allocate_the_same_shared_tensors(shape, dtype, names, values):
    with pytest.raises(NkiValidationError, match="is float32 \\(4, 6\\) on one core") as refusal:
        allocated_apart(shape, dtype, names, values)
    assert f"{dtype} {shape} on the other" in str(refusal.value)
    assert refusal.value.limit == "both cores allocate the same shared_hbm tensors"


def test_shared_tensors_of_different_names_are_different():
    allocated_apart((9, 9), "int8", ("a", "b"))
    allocated_apart([4, 6], "float32")  # a list is a shape too


def test_a_name_means_one_tensor_to_both_cores_in_any_order():
    def kernel(x):
        names = ["a", "b"] if nl.program_id(0) == 0 else ["b", "a"]
        tensors = {name: shared((8, 6), name) for name in names}
        half = 4 * nl.program_id(0)
        nisa.dma_copy(tensors["a"][half : half + 4], filled((4, 6)))
        return tensors["a"]

    assert launch(kernel).outputs[:, 0].tolist() == [1] * 4 + [2] * 4


def test_one_core_does_not_name_two_tensors_alike():
    def kernel(x):
        shared(name="twice")
        shared(name="twice")

    with pytest.raises(NkiValidationError, match="second tensor named 'twice'"):
        launch(kernel)
