"""Trace: places and bytes of accesses, and instructions counted in programs with loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.enums import engine
from nkisim.memory.allocation import Allocation
from nkisim.memory.layout import MemoryRegion, layout_of
from nkisim.running.host_arrays import Spec
from nkisim.running.kernel import run
from nkisim.trace import Access, Instruction, Loop, Trace, walk
from repetition import examples

pytestmark = pytest.mark.usefixtures("logical_cores_of_one")  # loops on one core

HBM, SBUF = MemoryRegion.private_hbm, MemoryRegion.sbuf


def access_of(view_of, shape=(64, 40), dtype="float32", region=nl.sbuf, address=None):
    """The access that an instruction on a view of a fresh tensor leaves in the trace."""

    def kernel():
        view = view_of(nl.ndarray(shape, dtype, region, address=address))
        other = nl.ndarray((view.shape[0], view.size // view.shape[0]), view.dtype)
        nisa.dma_copy(other, view)

    (instruction,) = run(kernel, machine="trn2", values=False).trace.instructions()
    return instruction.reads[0]


PLACES = [
    # (view, start partition, [first, end) byte in a partition)
    (lambda t: t, 0, (0, 160)),
    (lambda t: t[5:9, 10:20], 5, (40, 80)),
    (lambda t: t[63:64, 39:40], 63, (156, 160)),
    (lambda t: t[:, 1:40:13], 0, (4, 4 * 27 + 4)),
    (lambda t: t[32:, 4:8].view("bfloat16"), 32, (16, 32)),
    (lambda t: t[32:, 4:8].view("uint8")[:, 3:5], 32, (19, 21)),
    (lambda t: t.ap([[40, 2], [-3, 4]], offset=3 * 40 + 12), 3, (4 * 3, 4 * 12 + 4)),
    (lambda t: t.ap([[80, 3], [1, 5]], offset=7 * 80 + 6, dtype="float16"), 7, (12, 22)),
    (lambda t: t.reshape((64, 4, 10))[:, 1:3, 2:4], 0, (4 * 12, 4 * 23 + 4)),
    (lambda t: t[:, 0:1].broadcast(1, 9), 0, (0, 4)),
]


@pytest.mark.parametrize(("view_of", "partition", "interval"), PLACES)
def test_an_access_on_chip_knows_its_partition_and_its_bytes(view_of, partition, interval):
    access = access_of(view_of)
    assert access.start_partition == partition
    assert access.byte_interval == interval
    moved = access_of(view_of, address=(64, 4096))
    assert moved.start_partition == 64 + partition
    assert moved.byte_interval == interval  # inside the allocation


@pytest.mark.parametrize(
    ("view_of", "interval"),
    [
        (lambda t: t, (0, 64 * 160)),
        (lambda t: t[5], (5 * 160, 6 * 160)),
        (lambda t: t[5:7, 10:20], (5 * 160 + 40, 6 * 160 + 80)),
        (lambda t: t[::63, 0], (0, 63 * 160 + 4)),
        (lambda t: t.view("uint8")[1, 3:5], (163, 165)),
    ],
)
def test_an_access_to_hbm_is_an_interval_of_the_whole_tensor(view_of, interval):
    access = access_of(view_of, region=nl.hbm)
    assert access.byte_interval == interval
    assert access.start_partition == 0


@examples(60)
@given(st.data())
def test_the_interval_is_the_hull_of_the_bytes_of_the_elements(data):
    """Against stepping through the elements one by one."""
    dtype, size = data.draw(st.sampled_from([("float32", 4), ("bfloat16", 2), ("uint8", 1)]))
    row_bytes, partitions = 480, 6
    pitch = row_bytes // size
    first = data.draw(st.integers(0, 5))
    count = data.draw(st.integers(1, partitions - first))
    free = data.draw(st.lists(st.tuples(st.integers(-5, 9), st.integers(1, 3)), max_size=3))
    offset = first * pitch + 40
    shape = (count, *[n for _, n in free])
    strides = (pitch, *[s for s, _ in free])
    layout = layout_of(SBUF, dtype, shape, strides)
    allocation = Allocation(0, "t", SBUF, partitions, row_bytes, (32, 0))
    access = Access(allocation, layout, offset)
    touched = set()
    for index in np.ndindex(shape):
        element = offset + sum(i * s for i, s in zip(index, strides, strict=True))
        row, byte = divmod(element * size, row_bytes)
        assert first <= row < first + count
        touched |= set(range(byte, byte + size))
    assert access.byte_interval == (min(touched), max(touched) + 1)
    assert access.start_partition == 32 + first
    assert access.bytes_total == int(np.prod(shape)) * size


def test_bytes_total_counts_every_element_moved():
    assert access_of(lambda t: t).bytes_total == 64 * 160
    assert access_of(lambda t: t[0:3, ::2]).bytes_total == 3 * 20 * 4
    assert access_of(lambda t: t[:, 0:1].broadcast(1, 9)).bytes_total == 64 * 9 * 4
    assert access_of(lambda t: t[2], region=nl.hbm, dtype="bfloat16").bytes_total == 80


def instruction(index, name=None, options=()):
    return Instruction(index, "memset", engine.vector, (), (), options, name)


def test_static_and_executed_counts():
    inner = Loop(1, 5, 1, body=[instruction(1), instruction(2)])
    outer = Loop(0, 3, 1, body=[instruction(0), inner, instruction(3)])
    trace = Trace(items=[outer, instruction(4)])
    assert [i.index for i in trace.instructions()] == [0, 1, 2, 3, 4]
    assert trace.static_count == 5
    assert trace.executed_count == 3 * (1 + 5 * 2 + 1) + 1
    assert [i.index for i in walk(outer.body)] == [0, 1, 2, 3]


def test_an_unknown_trip_count_counts_once_and_none_does_not_count():
    body = [instruction(0), instruction(1)]
    assert Trace(items=[Loop(0, None, 0, body=body)]).executed_count == 2
    assert Trace(items=[Loop(0, 0, 1, body=body)]).executed_count == 0
    assert Trace(items=[Loop(0, 0, 1, body=body)]).static_count == 2


@pytest.mark.parametrize("values", [True, False])
def test_a_kernel_with_loops_is_counted_like_its_program(values):
    def kernel(x):
        tile = nl.ndarray((4, 6), x.dtype)

        def inner(_):
            nisa.memset(tile, 0.0)
            nisa.memset(tile, 1.0)

        def outer(i):
            nisa.dma_copy(tile, x[nl.ds(i, 4)])
            nl.fori_loop(2, 9, inner, step=3)  # 2, 5, 8
            nl.fori_loop(5, 5, inner)  # nothing

        nl.fori_loop(0, 20, outer, step=4)  # 0, 4, 8, 12, 16
        nisa.memset(tile, 2.0)

    x = np.zeros((20, 6), np.float32) if values else Spec((20, 6), "float32")
    trace = run(kernel, x, machine="trn2", values=values).trace
    assert trace.static_count == 4
    assert trace.executed_count == 5 * (1 + 3 * 2) + 1
    outer = trace.items[0]
    assert (outer.trips, outer.step, [type(item).__name__ for item in outer.body]) == (
        5,
        4,
        ["Instruction", "Loop"],
    )
    load = outer.body[0]
    assert (load.reads[0].offset, load.reads[0].step, load.reads[0].loop) == (0, 24, outer.number)
    assert [i.loop for i in trace.instructions()] == [0, 1, 1, -1]
    assert [i.index for i in trace.instructions()] == [0, 1, 2, 3]


def test_options_are_found_by_name():
    made = instruction(0, options=(("zero", True), ("mode", None)))
    assert made.option("zero") is True
    assert made.option("mode", "default") is None
    assert made.option("other", "default") == "default"


def test_keys_tell_traces_apart():
    """Everything that timing looks at is in the key; object identity is not."""

    def trace(index=0, **changes):
        layout = layout_of(HBM, "float32", (4, 6), (6, 1))
        place = Allocation(0, changes.pop("tensor", "x"), HBM, 1, 96)
        moved = changes.pop("offset", 0)
        access = Access(place, layout, moved, changes.pop("step", 0), changes.pop("loop", -1))
        made = Instruction(index, "dma_copy", engine.dma, (access,), (access,), (), None)
        for name, value in changes.items():
            setattr(made, name, value)
        return Trace(items=[made])

    assert trace().key() == trace().key()
    changed = [
        trace(1),
        trace(tensor="y"),
        trace(offset=1),
        trace(step=6),
        trace(loop=0),
        trace(op="memset"),
        trace(engine=engine.vector),
        trace(options=(("a", 1),)),
        trace(name="load"),
        trace(after=(3,)),
        trace(reads=()),
        trace(writes=()),
    ]
    keys = {trace().key(), *[one.key() for one in changed]}
    assert len(keys) == 1 + len(changed)
    looped = [Loop(0, 3, 1), Loop(1, 3, 1), Loop(0, 4, 1), Loop(0, 3, 2), Loop(0, None, 1)]
    assert len({Trace(items=[loop]).key() for loop in looped}) == len(looped)


def test_reprs_name_what_matters():
    access = access_of(lambda t: t[5:9, 10:20])
    assert "+210" in repr(access)
    assert "sbuf float32 (4, 10)" in repr(access)
    assert repr(instruction(7)).startswith("<7 vector.memset")


def test_a_compiler_counts_a_matmul_twice_and_an_fp32_one_four_times():
    """KILN: weights, then the product; KO: an fp32 matmul is two such pairs."""

    def kernel(x, y):
        out = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
        for data in (x, y):
            tile = nl.ndarray((128, 128), dtype=data.dtype, buffer=nl.sbuf)
            nisa.dma_copy(tile, data)
            total = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(total, tile, tile)
            back = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_copy(back, total)
            nisa.dma_copy(out, back)
        return out

    specs = Spec((128, 128), "bfloat16"), Spec((128, 128), "float32")
    trace = run(kernel, *specs, machine="trn2", values=False).trace
    assert trace.static_count == 8
    assert trace.compiler_count == 6 + 2 + 4
