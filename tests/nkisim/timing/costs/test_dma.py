"""DMA: descriptors counted by hand from two access patterns, and what each of them takes.

A descriptor takes max(floor, bytes / rate) + 10 ns. On trn2 the rate of an engine is 23 B/ns and
the floor 43 ns (35 and 107 in the other readings); 16 engines share the work.
"""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.enums import dge_mode
from nkisim.machine import TRN2, Reading
from nkisim.running.host_arrays import Spec
from nkisim.running.kernel import run
from nkisim.timing.costs import cost_of
from nkisim.timing.costs.dma import descriptor_count
from repetition import examples
from timing_instructions import HBM, SBUF, cost, engine, strided, tensor, view, whole

DMA = engine.dma
approx = pytest.approx


def copy(dst, src, **how):
    return cost("dma_copy", DMA, [dst], [src], **how)


def test_a_contiguous_tile_is_one_descriptor_a_partition():
    found = copy(whole((128, 512)), whole((128, 512), region=HBM)).transfer
    assert found.descriptors == 128
    assert found.ns_each == approx(2048 / 23 + 10)
    assert found.engines == 16
    assert found.hbm_bytes == 128 * 512 * 4
    assert (found.start_ns, found.done_ns) == (1300, 300)


@pytest.mark.parametrize(
    ("machine", "rate", "floor"), [("trn1", 17, 64 / 17), ("trn2", 23, 43), ("trn3", 33, 30)]
)
def test_every_generation_has_its_rate_and_its_floor(machine, rate, floor):
    """On trn1 descriptors are built beforehand, and those have no floor: 64 B are 64 B."""
    large = copy(whole((128, 512)), whole((128, 512), region=HBM), machine=machine).transfer
    assert large.ns_each == approx(2048 / rate + 10)
    small = copy(whole((128, 16)), whole((128, 16), region=HBM), machine=machine).transfer
    assert small.ns_each == approx(floor + 10)


@pytest.mark.parametrize(
    ("reading", "floor"), [(Reading.optimistic, 35), (Reading.pessimistic, 107)]
)
def test_the_floor_is_an_assumption(reading, floor):
    found = copy(whole((128, 16)), whole((128, 16), region=HBM), reading=reading).transfer
    assert found.ns_each == approx(floor + 10)


def test_a_column_slice_is_one_descriptor_a_row():
    matrix = tensor((1024, 4096), "bfloat16", HBM)
    block = view(matrix, (128, 256), "bfloat16", strides=(4096, 1), offset=512)
    found = copy(whole((128, 256), "bfloat16"), block).transfer
    assert (found.descriptors, found.ns_each) == (128, approx(43 + 10))  # 512 B take 22 ns


def test_a_tile_of_several_rows_has_a_descriptor_for_each_row_of_each_partition():
    rows = tensor((4, 128, 256), "bfloat16", HBM)
    src = view(rows, (128, 4, 256), "bfloat16", strides=(256, 128 * 256, 1))
    found = copy(whole((128, 4, 256), "bfloat16"), src).transfer
    assert found.descriptors == 128 * 4


def test_scattered_elements_have_a_descriptor_each():
    transposed = view(tensor((512, 128), region=HBM), (128, 512), strides=(1, 128))
    found = copy(whole((128, 512)), transposed).transfer
    assert (found.descriptors, found.ns_each) == (128 * 512, approx(43 + 10))
    on_chip = copy(strided((128, 512), "float32", 2), whole((128, 512), region=HBM)).transfer
    assert on_chip.descriptors == 128 * 512


def test_a_broadcast_row_is_read_once_for_every_partition():
    row = view(tensor((512,), region=HBM), (128, 512), strides=(0, 1))
    found = copy(whole((128, 512)), row).transfer
    assert found.descriptors == 128
    assert found.hbm_bytes == 128 * 512 * 4
    element = view(tensor((1,), region=HBM), (128, 512), strides=(0, 0))
    assert copy(whole((128, 512)), element).transfer.descriptors == 128 * 512


def test_a_cast_moves_the_bytes_of_the_wider_side():
    found = copy(whole((128, 512), "bfloat16"), whole((128, 512), region=HBM)).transfer
    assert (found.descriptors, found.ns_each) == (128, approx(2048 / 23 + 10))
    assert found.hbm_bytes == 128 * 512 * 4
    other = copy(whole((128, 512)), whole((128, 512), "bfloat16", HBM)).transfer
    assert (other.descriptors, other.ns_each) == (128, approx(2048 / 23 + 10))
    assert other.hbm_bytes == 128 * 512 * 2


def test_a_cast_between_runs_of_different_lengths_counts_elements_not_bytes():
    dst = view(tensor((128, 800), "float32"), (128, 4, 100), strides=(200, 1))  # 100 of 4 B
    src = view(tensor((128, 400), "bfloat16", HBM), (128, 400), "bfloat16")  # 400 of 2 B
    assert copy(dst, src).transfer.descriptors == 128 * 4


def test_a_few_partitions_use_a_few_engines():
    tiles = whole((4, 512)), whole((4, 512), region=HBM)
    assert copy(*tiles).transfer.engines == 4  # as many as descriptors
    pessimistic = copy(*tiles, reading=Reading.pessimistic).transfer
    assert pessimistic.engines == 1  # an engine serves 8 partitions
    full = whole((128, 512)), whole((128, 512), region=HBM)
    assert copy(*full, reading=Reading.pessimistic).transfer.engines == 16


def test_a_run_inside_hbm_is_spread_over_the_engines():
    def inside(elems, **how):
        return copy(whole((elems,), region=HBM), whole((elems,), region=HBM), **how).transfer

    large = inside(1 << 20)
    assert (large.descriptors, large.engines) == (16, 16)
    assert large.ns_each == approx((1 << 22) / 16 / 23 + 10)
    assert large.hbm_bytes == 2 * (1 << 22)  # read and written
    assert inside(2048).descriptors == 2  # packets of 4 KiB
    assert inside(1 << 20, reading=Reading.pessimistic).engines == 16


@pytest.mark.parametrize(
    ("dst", "src", "direction"),
    [
        (SBUF, HBM, "load"),
        (HBM, SBUF, "store"),
        (SBUF, SBUF, "within SBUF"),
        (HBM, HBM, "within HBM"),
    ],
)
def test_transfers_of_one_direction_share_a_queue(dst, src, direction):
    assert (
        copy(whole((8, 8), region=dst), whole((8, 8), region=src)).transfer.direction == direction
    )


def brute_force_descriptors(dst, src):
    """Walk both patterns in step; a descriptor ends where either side does not go on by one."""

    def addresses(layout):
        shape, strides = layout.shape, layout.strides
        for index in itertools.product(*map(range, shape)):
            row = index[0] if layout.on_chip else 0
            free = zip(index, strides, strict=True)
            yield row, sum(i * s for i, s in (list(free)[1:] if layout.on_chip else free))

    count, before = 0, None
    for here in zip(addresses(dst), addresses(src), strict=True):
        goes_on = before is not None and all(
            now[0] == then[0] and now[1] == then[1] + 1
            for now, then in zip(here, before, strict=True)
        )
        count += not goes_on
        before = here
    return count


@st.composite
def patterns(draw):
    """A tile and an HBM view of the same elements, split into rows in different ways."""
    partitions, outer, inner = draw(st.sampled_from([(2, 6, 4), (3, 4, 6), (4, 1, 12), (1, 2, 12)]))
    gap = draw(st.integers(0, 3))
    tile = tensor((partitions, outer * (inner + gap)), "float32")
    dst = view(tile, (partitions, outer, inner), strides=(inner + gap, 1))
    total = partitions * outer * inner
    width = draw(st.sampled_from([w for w in range(1, total + 1) if total % w == 0]))
    pitch = width + draw(st.integers(0, 2))
    rows = tensor((total // width * pitch,), region=HBM)
    src = view(rows, (total // width, width), strides=(pitch, 1))
    return dst.layout, src.layout


@given(patterns())
@examples(200)
def test_descriptors_are_the_runs_that_are_contiguous_on_both_sides(pair):
    dst, src = pair
    assert descriptor_count(dst, src) == brute_force_descriptors(dst, src)


ISSUE = {"none": 100, "hwdge": 600, "swdge": 900}


@pytest.mark.parametrize("mode", [dge_mode.none, dge_mode.hwdge, dge_mode.swdge])
def test_issuing_costs_by_who_writes_the_descriptors(mode):
    tiles = whole((128, 512)), whole((128, 512), region=HBM)
    assert copy(*tiles, dge_mode=mode).busy_ns == ISSUE[mode.name]


@pytest.mark.parametrize(
    ("reading", "none", "hwdge", "swdge"),
    [(Reading.optimistic, 50, 490, 490), (Reading.pessimistic, 320, 630, 1000)],
)
def test_issuing_in_the_other_readings(reading, none, hwdge, swdge):
    tiles = whole((128, 512)), whole((128, 512), region=HBM)
    modes = (dge_mode.none, dge_mode.hwdge, dge_mode.swdge)
    found = [copy(*tiles, dge_mode=mode, reading=reading).busy_ns for mode in modes]
    assert found == [none, hwdge, swdge]


@pytest.mark.parametrize(
    ("machine", "mode"), [("trn1", "none"), ("trn2", "hwdge"), ("trn3", "hwdge")]
)
def test_what_the_compiler_is_taken_to_choose(machine, mode):
    tiles = whole((128, 512)), whole((128, 512), region=HBM)
    assert copy(*tiles, machine=machine).busy_ns == ISSUE[mode]
    unknown = copy(*tiles, machine=machine, dge_mode=dge_mode.unknown)
    assert unknown.busy_ns == ISSUE[mode]


def test_a_hardware_loop_cannot_use_descriptors_made_before():
    tiles = [whole((128, 512))], [whole((128, 512), region=HBM)]
    assert cost("dma_copy", DMA, *tiles, machine="trn1", loop=0).busy_ns == ISSUE["swdge"]
    assert cost("dma_copy", DMA, *tiles, machine="trn2", loop=0).busy_ns == ISSUE["hwdge"]


def test_only_software_gathers_and_one_offset_is_no_gather():
    dst, src = whole((128, 512)), whole((128, 512), region=HBM)
    rows, offset = whole((128, 1), "int32"), whole((1, 1), "int32")
    assert cost("dma_copy", DMA, [dst], [src, rows]).busy_ns == ISSUE["swdge"]
    assert cost("dma_copy", DMA, [dst], [src, offset]).busy_ns == ISSUE["hwdge"]
    src.anywhere = True
    assert cost("dma_copy", DMA, [dst], [src, offset], machine="trn1").busy_ns == ISSUE["swdge"]


def test_a_transpose_runs_at_a_share_of_the_rate():
    def transpose(src, **how):
        dst = whole((128, 2048), "bfloat16")
        return cost("dma_transpose", DMA, [dst], [src], **how)

    from_hbm = transpose(whole((2048, 128), "bfloat16", HBM))
    assert from_hbm.transfer.descriptors == 128
    assert from_hbm.transfer.ns_each == approx(4096 / (23 * 0.9) + 10)
    assert from_hbm.busy_ns == ISSUE["hwdge"]
    from_sbuf = transpose(whole((128, 2048), "bfloat16"))
    assert from_sbuf.transfer.ns_each == approx(4096 / (23 * 0.5) + 10)


def test_a_small_transpose_meets_the_floor():
    dst, src = whole((128, 16), "bfloat16"), whole((16, 128), "bfloat16", HBM)
    assert cost("dma_transpose", DMA, [dst], [src]).transfer.ns_each == approx(43 + 10)


@pytest.mark.parametrize(("machine", "rate"), [("trn2", 23 * 0.5), ("trn3", 33)])
def test_adding_copies_every_source_at_half_rate_before_trn3(machine, rate):
    dst = whole((128, 512))
    sources = [whole((128, 512), region=HBM), whole((128, 512))]
    found = cost("dma_compute", DMA, [dst], sources, machine=machine, indirect=False)
    assert found.transfer.descriptors == 2 * 128
    assert found.transfer.ns_each == approx(2048 / rate + 10)
    assert found.transfer.hbm_bytes == 128 * 512 * 4
    assert found.busy_ns == ISSUE["none"]  # ISA: its descriptors are always made before


def test_adding_gathered_rows_is_done_by_software():
    dst, index = whole((128, 512)), whole((128, 1), "int32")
    sources = [whole((128, 512), region=HBM), dst]
    found = cost("dma_compute", DMA, [dst], [*sources, index], indirect=True)
    assert found.busy_ns == ISSUE["swdge"]
    assert found.transfer.descriptors == 2 * 128


def test_a_gather_in_a_kernel_is_seen():
    def kernel(table, numbers):
        rows = nl.ndarray((64, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(rows, numbers)
        tile = nl.ndarray((64, 256), dtype=table.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, table.ap([[256, 64], [1, 256]], vector_offset=rows, indirect_dim=0))
        out = nl.ndarray((64, 256), dtype=table.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, tile)
        return out

    specs = Spec((1000, 256), "float32"), Spec((64, 1), "int32")
    done = run(kernel, *specs, machine="trn2", values=False)
    plain, gather, store = (cost_of(one, TRN2) for one in done.trace.instructions())
    assert [plain.busy_ns, gather.busy_ns, store.busy_ns] == [600, 900, 600]
    assert gather.transfer.descriptors == 64


def test_a_transpose_of_four_byte_types_takes_twice_as_long_as_its_bytes():
    """TB: 2.8 times the time of two-byte types; the documents make no difference (A2)."""
    for dtype, factor in (("bfloat16", 1.0), ("float32", 0.5)):
        size = 2 if dtype == "bfloat16" else 4
        found = cost(
            "dma_transpose",
            DMA,
            [whole((128, 2048), dtype)],
            [whole((2048, 128), dtype, region=HBM)],
        )
        assert found.transfer.ns_each == approx(2048 * size / (0.9 * factor) / 23 + 10)
    bold = {"reading": Reading.optimistic}
    tiles = [whole((128, 2048))], [whole((2048, 128), region=HBM)]
    found = cost("dma_transpose", DMA, *tiles, **bold)
    assert found.transfer.ns_each == approx(2048 * 4 / 0.9 / 23 + 10)


@pytest.mark.parametrize(("reading", "floor"), [(Reading.default, 0), (Reading.pessimistic, 107)])
def test_descriptors_built_beforehand_have_no_floor(reading, floor):
    """XG, AC: 448 B move in 25 ns; pessimistically the documented curve holds for them too."""
    rows = [whole((128, 224), "bfloat16")], [whole((128, 224), "bfloat16", region=HBM)]
    asked = {"reading": reading, "dge_mode": dge_mode.none}
    found = cost("dma_copy", DMA, *rows, **asked)
    assert found.transfer.ns_each == approx(max(floor, 448 / 23) + 10)
