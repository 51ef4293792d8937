"""Hardware loops: fori_loop, while_loop, registers as offsets and bounds, and their traces."""

import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from isa_tiles import refused
from kernel_steps import assert_traces_agree, give, load, result_of, specs
from nkisim.enums import oob_mode
from nkisim.errors import NkiValidationError, RaceError, UnsupportedError
from nkisim.running.kernel import Kernel, run
from nkisim.trace import Loop

pytestmark = pytest.mark.usefixtures("logical_cores_of_one")  # loops on one core


@pytest.fixture
def rng():
    return np.random.default_rng(22)


def both_traces(kernel, *arrays, machine="trn2"):
    """The trace with values and the one without."""
    with_values = run(kernel, *arrays, machine=machine)
    without = run(kernel, *specs(*arrays), machine=machine, values=False)
    return with_values.trace, without.trace


def loops(trace):
    """All loops of a trace, outer ones first."""
    found, items = [], list(trace.items)
    while items:
        item = items.pop(0)
        if isinstance(item, Loop):
            found.append(item)
            items = list(item.body) + items
    return found


def rows(tensor, first, count):
    """`count` rows of a matrix from the row in a register on."""
    width = tensor.shape[1]
    return tensor.ap([[width, count], [1, width]], scalar_offset=first)


def doubling(x, *, lower=0, upper=None, step=4):
    """Doubles blocks of `step` rows of a matrix in a loop."""
    result = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)

    def body(i):
        tile = nl.ndarray((step, x.shape[1]), x.dtype, nl.sbuf)
        nisa.dma_copy(tile, rows(x, i, step))
        nisa.tensor_tensor(tile, tile, tile, nl.add)
        nisa.dma_copy(rows(result, i, step), tile)

    nl.fori_loop(lower, x.shape[0] if upper is None else upper, body, step)
    return result


def test_a_counter_is_an_offset_into_hbm(rng):
    x = rng.normal(size=(24, 10)).astype(np.float32)
    np.testing.assert_array_equal(result_of(doubling, x), 2 * x)
    assert_traces_agree(doubling, x)


def test_the_trace_holds_the_body_once(rng):
    x = rng.normal(size=(24, 10)).astype(np.float32)
    trace = run(doubling, x, machine="trn2").trace
    (loop,) = loops(trace)
    assert (loop.trips, loop.step) == (6, 4)
    assert [instruction.op for instruction in loop.body] == [
        "dma_copy",
        "tensor_tensor",
        "dma_copy",
    ]
    assert (trace.static_count, trace.executed_count) == (3, 18)
    read, written = loop.body[0].reads[0], loop.body[2].writes[0]
    assert (read.offset, read.step, read.loop) == (0, 4 * 10, loop.number)
    assert (written.offset, written.step) == (0, 4 * 10)
    assert loop.body[1].reads[0].step == 0


def test_lower_bound_and_step_move_the_first_access(rng):
    x = rng.normal(size=(24, 10)).astype(np.float32)

    def kernel(x):
        return doubling(x, lower=3, upper=22, step=5)

    result = result_of(kernel, x)
    np.testing.assert_array_equal(result[3:23], 2 * x[3:23])
    assert np.isnan(result[:3]).all()
    trace = run(kernel, x, machine="trn2").trace
    assert loops(trace)[0].trips == 4
    assert loops(trace)[0].body[0].reads[0].offset == 3 * 10
    assert_traces_agree(kernel, x)


def test_what_follows_a_loop_of_one_iteration_is_recorded(rng):
    x = rng.normal(size=(4, 10)).astype(np.float32)

    def kernel(x):
        return give(load(doubling(x)))

    trace = run(kernel, x, machine="trn2").trace
    assert loops(trace)[0].trips == 1
    assert trace.executed_count == 3 + 3
    assert_traces_agree(kernel, x)


def test_a_loop_of_no_iteration_leaves_nothing(rng):
    x = rng.normal(size=(8, 4)).astype(np.float32)

    def kernel(x):
        doubling(x, lower=8)

    assert [trace.items for trace in both_traces(kernel, x)] == [[], []]
    with pytest.raises(NkiValidationError, match=r"output 0, tensor .* is never written"):
        run(lambda x: doubling(x, lower=8), x, machine="trn2")


def test_on_chip_tensors_are_indexed_by_a_counter(rng):
    x = rng.normal(size=(16, 6, 5)).astype(np.float32)

    def kernel(x):
        tile, reversed_ = load(x), nl.ndarray((16, 6, 5), nl.float32, nl.sbuf)
        total = nl.ndarray((16, 5), nl.float32, nl.sbuf)
        nisa.memset(total, 0.0)

        def body(i):
            nisa.tensor_tensor(total, total, tile.select(1, i), nl.add)
            backwards = tile.ap([[30, 16], [-1, 5]], offset=4, scalar_offset=i, indirect_dim=1)
            nisa.tensor_copy(reversed_.select(1, i), backwards)

        nl.fori_loop(0, 6, body)
        return give(total), give(reversed_)

    expected = np.zeros((16, 5), np.float32)
    for i in range(6):
        expected = expected + x[:, i]
    total, reversed_ = result_of(kernel, x)
    np.testing.assert_array_equal(total, expected)
    np.testing.assert_array_equal(reversed_, x[:, :, ::-1])
    assert_traces_agree(kernel, x)


def test_ds_takes_a_register(rng):
    x = rng.normal(size=(16, 12)).astype(np.float32)

    def kernel(x):
        tile, result = load(x), nl.ndarray((16, 12), nl.float32, nl.sbuf)

        def body(i):
            nisa.tensor_copy(result[:, nl.ds(i, 3)], tile[:, nl.ds(i, 3)])

        nl.fori_loop(0, 12, body, 3)
        return give(result)

    np.testing.assert_array_equal(result_of(kernel, x), x)
    assert_traces_agree(kernel, x)


def test_state_is_carried_in_sbuf_and_tensors_of_the_body_are_fresh():
    def kernel(x):
        total = load(x)

        def body(_i):
            part = nl.ndarray((1, 2), nl.float32, nl.sbuf, name="part")
            nisa.tensor_tensor(part[:, 0:1], total[:, 0:1], total[:, 0:1], nl.add)
            nisa.tensor_copy(total, part)

        nl.fori_loop(0, 5, body)
        return give(total)

    doubled, fresh = result_of(kernel, np.ones((1, 2), np.float32))[0]
    assert doubled == 32
    assert np.isnan(fresh)


def test_the_tensors_of_a_body_take_their_room_once():
    def kernel(x, trips):
        def body(_i):
            nisa.memset(nl.ndarray((128, 30_000), nl.float32, nl.sbuf), 0.0)

        nl.fori_loop(0, trips, body)

    runs = [run(kernel, np.zeros(1, np.float32), trips, machine="trn2") for trips in (1, 3)]
    memories = [one.memory for one in runs]
    assert memories[0] == memories[1]
    assert memories[0].sbuf_peak_bytes_per_partition == 120_000


def test_a_register_is_a_bound(rng):
    x = rng.normal(size=(24, 10)).astype(np.float32)

    def kernel(x):
        return doubling(x, lower=nisa.register_alloc(4), upper=nisa.register_alloc(20))

    np.testing.assert_array_equal(result_of(kernel, x)[4:20], 2 * x[4:20])
    assert_traces_agree(kernel, x)
    assert loops(run(kernel, x, machine="trn2").trace)[0].trips == 4


def test_a_bound_from_memory_is_known_to_a_run_with_values_only(rng):
    x = rng.normal(size=(24, 10)).astype(np.float32)

    def kernel(x, bound):
        register = nisa.register_alloc()
        nisa.register_load(register, load(bound))
        return doubling(x, lower=8, upper=register)

    result = result_of(kernel, x, np.array([[20]], np.int32))
    np.testing.assert_array_equal(result[8:20], 2 * x[8:20])
    assert np.isnan(result[20:]).all()
    traces = both_traces(kernel, x, np.array([[20]], np.int32))
    assert [loops(trace)[0].trips for trace in traces] == [3, None]
    assert [trace.executed_count for trace in traces] == [2 + 3 * 3, 2 + 3]
    bodies = [[item.key() for item in loops(trace)[0].body] for trace in traces]
    assert bodies[0] == bodies[1]


def test_loops_nest(rng):
    x = rng.normal(size=(12, 20)).astype(np.float32)

    def kernel(x):
        """Transposes blocks of 3 x 5, then doubles; a loop follows the nest."""
        result = nl.ndarray((12, 20), nl.float32, nl.shared_hbm)
        columns = nl.ndarray((12, 20), nl.float32, nl.sbuf)
        nisa.dma_copy(columns, x)

        def outer(i):
            row = nl.ndarray((1, 20), nl.float32, nl.sbuf)
            nisa.dma_copy(row, rows(x, i, 1))

            def inner(j):
                part = row.ap([[20, 1], [1, 5]], scalar_offset=j, indirect_dim=1)
                nisa.tensor_tensor(part, part, part, nl.add)

            nl.fori_loop(0, 20, inner, 5)
            nisa.dma_copy(rows(result, i, 1), row)

        nl.fori_loop(0, 12, outer)

        def last(i):
            nisa.dma_copy(rows(result, i, 6), rows(result, i, 6))

        nl.fori_loop(0, 12, last, 6)
        return result

    np.testing.assert_array_equal(result_of(kernel, x), 2 * x)
    trace, shape_only = both_traces(kernel, x)
    assert trace.key() == shape_only.key()
    assert [loop.trips for loop in loops(trace)] == [12, 4, 2]
    assert [loop.number for loop in loops(trace)] == [0, 1, 2]
    assert trace.executed_count == 1 + 12 * (2 + 4 * 1) + 2
    inner = loops(trace)[1].body[0]
    assert (inner.loop, inner.reads[0].step) == (1, 5)


def test_a_bound_may_follow_the_counter_of_an_outer_loop(rng):
    """Row i is added up from column 0 to i; how often the inner loop runs is no constant."""
    x = rng.integers(0, 9, size=(6, 7)).astype(np.float32)

    def kernel(x):
        tile, total = load(x), nl.ndarray((6, 1), nl.float32, nl.sbuf)
        nisa.memset(total, 0.0)

        def outer(i):
            def inner(j):
                column = tile.select(1, j)
                nisa.tensor_tensor(total, total, column.reshape((6, 1)), nl.add)

            nl.fori_loop(0, i, inner)

        nl.fori_loop(2, 8, outer)
        return give(total)

    expected = sum(x[:, j] for i in range(2, 8) for j in range(i))
    np.testing.assert_array_equal(result_of(kernel, x)[:, 0], expected)
    trace, shape_only = both_traces(kernel, x)
    assert trace.key() == shape_only.key()
    assert [loop.trips for loop in loops(trace)] == [6, None]

    def too_far(x):
        tile = load(x)

        def outer(i):
            nl.fori_loop(0, i, lambda j: nisa.memset(tile.select(1, j), 0.0))

        nl.fori_loop(2, 9, outer)

    for values in (True, False):
        with refused("memset", "must stay inside"):
            run(too_far, *(x,) if values else specs(x), machine="trn2", values=values)


def test_a_counter_is_copied_to_a_register_and_steps_with_its_loop(rng):
    x = rng.normal(size=(24, 10)).astype(np.float32)

    def kernel(x):
        result = nl.ndarray((24, 10), nl.float32, nl.shared_hbm)
        place = nisa.register_alloc()

        def body(i):
            nisa.register_move(place, i)
            nisa.dma_copy(rows(result, place, 4), rows(x, place, 4))

        nl.fori_loop(0, 24, body, 4)
        last = nl.ndarray((4, 10), nl.float32, nl.shared_hbm)
        nisa.dma_copy(last, rows(x, place, 4))
        return result, last

    result, last = result_of(kernel, x)
    np.testing.assert_array_equal(result, x)
    np.testing.assert_array_equal(last, x[20:])
    trace, shape_only = both_traces(kernel, x)
    assert trace.key() == shape_only.key()
    assert loops(trace)[0].body[1].writes[0].step == 40
    assert trace.items[-1].reads[0].offset == 200


@pytest.mark.parametrize("version", ["0.6", "0.7"])
def test_a_counter_is_materialised_in_memory(rng, version, choose_nki):
    choose_nki(version)
    x = rng.normal(size=(6, 5)).astype(np.float32)

    def kernel(x):
        result = nl.ndarray((6, 5), nl.float32, nl.shared_hbm)
        place = nl.ndarray((1, 1), nl.int32, nl.sbuf)

        def body(i):
            if version == "0.6":
                nisa.register_store(place, i)
            else:
                nisa.scalar_store(place, i)
            nisa.dma_copy(rows(result, place, 1), rows(x, place, 1))

        nl.fori_loop(0, 6, body)
        return result

    np.testing.assert_array_equal(result_of(kernel, x), x)
    assert_traces_agree(kernel, x)


@pytest.mark.parametrize("values", [True, False])
def test_an_offset_that_leaves_the_tensor_is_refused(rng, values):
    x = rng.normal(size=(22, 10)).astype(np.float32)  # the last block of 4 has 2 rows
    with refused("dma_copy", r"the view \(4, 10\) must stay inside"):
        run(doubling, *(x,) if values else specs(x), machine="trn2", values=values)


@pytest.mark.filterwarnings("ignore:dma_copy. oob_mode.skip in a device loop")
def test_an_offset_that_leaves_the_tensor_is_skipped_when_told(rng):
    x = rng.normal(size=(22, 10)).astype(np.float32)

    def kernel(x):
        result = nl.ndarray((22, 10), nl.float32, nl.shared_hbm)

        def body(i):
            nisa.dma_copy(rows(result, i, 4), rows(x, i, 4), oob_mode=oob_mode.skip)

        nl.fori_loop(0, 22, body, 4)
        return result

    result = result_of(kernel, x)
    np.testing.assert_array_equal(result[:20], x[:20])
    assert np.isnan(result[20:]).all()
    assert_traces_agree(kernel, x)


def counting(start, *, again=lambda r, _left: r):
    """Adds x to a total until a number in memory is counted down to 0."""

    def kernel(x, count):
        total, left, one = load(x), load(count), nl.ndarray((1, 1), nl.int32, nl.sbuf)
        nisa.memset(total, 0.0)
        nisa.memset(one, 1)
        value = load(x)
        register = start(count)

        def body(r):
            nisa.tensor_tensor(total, total, value, nl.add)
            nisa.tensor_tensor(left, left, one, nl.subtract)
            nisa.register_load(r, left)
            return again(r, left)

        nl.while_loop(register, body)
        return give(total)

    return kernel


def loaded(count):
    register = nisa.register_alloc()
    nisa.register_load(register, count)
    return register


def test_a_while_loop_runs_until_its_register_is_zero(rng):
    x, count = rng.integers(1, 9, size=(4, 6)).astype(np.float32), np.array([[3]], np.int32)
    np.testing.assert_array_equal(result_of(counting(loaded), x, count), 3 * x)
    trace, shape_only = both_traces(counting(loaded), x, count)
    assert [loops(t)[0].trips for t in (trace, shape_only)] == [3, None]
    outside = 3 + 2 + 1 + 2  # loads, memsets, register_load, and giving back
    assert [t.executed_count for t in (trace, shape_only)] == [outside + 9, outside + 3]
    bodies = [[item.key() for item in loops(t)[0].body] for t in (trace, shape_only)]
    assert bodies[0] == bodies[1]


def test_a_while_loop_whose_register_is_zero_does_not_run(rng):
    x, count = rng.normal(size=(4, 6)).astype(np.float32), np.array([[0]], np.int32)
    np.testing.assert_array_equal(result_of(counting(loaded), x, count), np.zeros((4, 6)))
    kernel = counting(lambda _count: nisa.register_alloc(0))
    for trace in both_traces(kernel, x, count):
        assert loops(trace) == []


def test_the_body_of_a_while_loop_may_return_another_register(rng):
    x, count = rng.integers(1, 9, size=(4, 6)).astype(np.float32), np.array([[4]], np.int32)

    def other(_r, left):
        register = nisa.register_alloc()
        nisa.register_load(register, left)
        return register

    np.testing.assert_array_equal(result_of(counting(loaded, again=other), x, count), 4 * x)


def test_a_while_loop_needs_a_register_with_a_value():
    x, count = np.zeros((4, 6), np.float32), np.array([[4]], np.int32)
    with pytest.raises(UnsupportedError, match="an unset register has no value"):
        run(counting(lambda _count: nisa.register_alloc()), x, count, machine="trn2")
    for kernel in (
        counting(lambda _count: 3),
        counting(loaded, again=lambda _r, _left: None),
    ):
        with refused("nl.while_loop", "a register"):
            run(kernel, x, count, machine="trn2")


def test_dynamic_range_is_the_old_spelling(rng, nki_0_6):
    x = rng.normal(size=(24, 10)).astype(np.float32)

    def kernel(x):
        result = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        with pytest.deprecated_call(match="use nl.fori_loop"):
            counter = nl.dynamic_range(24)
        for i in counter:
            nisa.dma_copy(rows(result, i, 1), rows(x, i, 1))
        with pytest.deprecated_call(match="use nl.fori_loop"):
            counter = nl.dynamic_range(4, nisa.register_alloc(12), 4)
        for i in counter:
            nisa.dma_copy(rows(result, i, 4), rows(x, i, 4))
        return result

    np.testing.assert_array_equal(result_of(kernel, x), x)
    assert_traces_agree(kernel, x)
    assert [loop.trips for loop in loops(run(kernel, x, machine="trn2").trace)] == [24, 2]


def test_dynamic_range_is_refused_where_python_is_traced():
    kernel = looping_over(lambda: nl.dynamic_range(4))
    with refused("nl.dynamic_range", "Python's `for` cannot run on the device"):
        run(kernel, np.zeros(1, np.float32), machine="trn2")


def looping_over(make):
    return lambda _x: [None for _ in make()]


def looping(lower=0, upper=4, step=1, body=lambda _i: None):
    return lambda _x: nl.fori_loop(lower, upper, body, step)


@pytest.mark.parametrize(
    ("kernel", "limit"),
    [
        (looping(step=0), "a positive integer known at compile time"),
        (looping(step=-1), "a positive integer known at compile time"),
        (looping(step=1.0), "a positive integer known at compile time"),
        (looping(step=True), "a positive integer known at compile time"),
        (looping(upper=4.0), "an integer, a register or a scalar"),
        (looping(lower=None), "an integer, a register or a scalar"),
    ],
)
def test_a_loop_is_refused_for(kernel, limit):
    with refused("nl.fori_loop", limit):
        run(kernel, np.zeros(1, np.float32), machine="trn2")


@pytest.mark.parametrize("values", [True, False])
def test_a_counter_is_read_only_in_nki_0_6(values, nki_0_6):
    kernel = looping(body=lambda i: nisa.register_move(i, 3))
    arrays = (np.zeros(1, np.float32),)
    with pytest.raises(nisa.NkiValidationError, match="write to a loop counter"):
        run(kernel, *arrays if values else specs(*arrays), machine="trn2", values=values)


@pytest.mark.parametrize("loop", ["fori_loop", "while_loop"])
def test_dynamic_loops_do_not_go_into_no_reorder(loop):
    def kernel(_x):
        with nl.no_reorder():
            if loop == "fori_loop":
                nl.fori_loop(0, 2, lambda _i: None)
            else:
                nl.while_loop(nisa.register_alloc(1), lambda r: r)

    with refused(f"nl.{loop}", "not supported by the compiler"):
        run(kernel, np.zeros(1, np.float32), machine="trn2")


def test_no_reorder_goes_into_a_dynamic_loop():
    def body(_i):
        with nl.no_reorder():
            nisa.memset(nl.ndarray((1, 1), nl.float32, nl.sbuf), 0.0)

    run(looping(body=body), np.zeros(1, np.float32), machine="trn2")


def accumulating(flag, *, inside):
    """Adds up products of blocks of K in a loop."""

    def kernel(a, b):
        outside = None if inside else nl.ndarray((4, 6), nl.float32, nl.psum)
        total = nl.ndarray((4, 6), nl.float32, nl.sbuf)
        nisa.memset(total, 0.0)

        def body(i):
            psum = nl.ndarray((4, 6), nl.float32, nl.psum) if inside else outside
            left, right = nl.ndarray((8, 4), "float32"), nl.ndarray((8, 6), "float32")
            nisa.dma_copy(left, rows(a, i, 8))
            nisa.dma_copy(right, rows(b, i, 8))
            nisa.nc_matmul(psum, left, right, accumulate=flag)
            nisa.tensor_tensor(total, total, psum, nl.add)

        nl.fori_loop(0, 32, body, 8)
        return give(total)

    return kernel


@pytest.mark.parametrize("flag", [None, False])
def test_a_matmul_in_a_loop_overwrites_its_own_tile(rng, flag):
    a = rng.integers(-4, 5, size=(32, 4)).astype(np.float32)
    b = rng.integers(-4, 5, size=(32, 6)).astype(np.float32)
    kernel = accumulating(flag, inside=True)
    np.testing.assert_array_equal(result_of(kernel, a, b), a.T @ b)
    assert_traces_agree(kernel, a, b)


@pytest.mark.parametrize("values", [True, False])
def test_a_matmul_in_a_loop_has_to_say_what_it_does_to_an_outer_tile(values):
    arrays = (np.ones((32, 4), np.float32), np.ones((32, 6), np.float32))
    given = arrays if values else specs(*arrays)
    with refused("nc_matmul", "the body is compiled once"):
        run(accumulating(None, inside=False), *given, machine="trn2", values=values)


def test_order_is_not_stated_across_the_end_of_a_loop():
    def kernel(_x):
        tile = nl.ndarray((1, 1), nl.float32, nl.sbuf)
        inside = []
        nl.fori_loop(0, 2, lambda _i: inside.append(nisa.memset(tile, 0.0)))
        nisa.memset(tile, 1.0).depends_on(inside[0])

    with refused("depends_on", "may not leave a dynamic loop"):
        run(kernel, np.zeros(1, np.float32), machine="trn2")


def sharing(first_of_core_1):
    """Two cores copy rows of x in a loop, core 1 beginning at some row."""

    def kernel(x):
        me = nl.program_id(0)
        result = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        tile = nl.ndarray((2, x.shape[1]), nl.float32, nl.sbuf)

        def body(i):
            nisa.dma_copy(tile, rows(x, i, 2))
            nisa.tensor_scalar(tile, tile, nl.add, float(me))
            nisa.dma_copy(rows(result, i, 2), tile)

        first = first_of_core_1 if me else 0
        nl.fori_loop(first, first + 8, body, 2)
        return result

    return Kernel(kernel)[2]


@pytest.mark.parametrize("values", [True, False])
def test_races_are_found_in_every_iteration_of_a_loop(rng, values, monkeypatch):
    monkeypatch.delenv("NEURON_LOGICAL_NC_CONFIG")  # two cores
    x = rng.normal(size=(16, 5)).astype(np.float32)
    given = (x,) if values else specs(x)
    run_ = run(sharing(8), *given, machine="trn2", values=values)
    if values:
        np.testing.assert_array_equal(run_.outputs, np.concatenate([x[:8], x[8:] + 1]))
    with pytest.raises(RaceError, match="unordered conflicting accesses"):
        run(sharing(6), *given, machine="trn2", values=values)


@pytest.mark.parametrize("change", ["longer", "shorter", "other"])
def test_python_state_that_changes_the_body_is_refused(change):
    """The device runs what was compiled: a body cannot differ from iteration to iteration."""
    iterations = []

    def kernel():
        def body(_):
            iterations.append(None)
            later = len(iterations) > 1
            copies = {"longer": 1 + later, "shorter": 2 - later, "other": 1}[change]
            for _ in range(copies):
                nisa.tensor_scalar(tile, tile, nl.add, 1.0)
            if change == "other":
                nisa.memset(tile[:, : 2 + later], 0.0)

        tile = nl.ndarray((4, 4), nl.float32)
        nisa.memset(tile, 0.0)
        nl.fori_loop(0, 4, body)

    with pytest.raises(NkiValidationError, match="every iteration runs the same instructions"):
        run(kernel, machine="trn2")
