"""Boxes against enumerated bytes, ledgers against a list that is searched from end to end."""

import itertools
import random
from array import array

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.running.host_arrays import Spec
from nkisim.running.kernel import run
from nkisim.timing.boxes import (
    covers,
    hbm_box,
    on_chip_box,
    outer_pitch_bytes,
    overlap,
    whole_box,
)
from nkisim.timing.hazards import Hazards, read_only_allocations
from nkisim.timing.ledger import Ledger, Settled
from repetition import examples, few
from timing_instructions import HBM, PSUM, SBUF, engine, instruction, tensor, view, whole

DMA, DVE, PE = engine.dma, engine.vector, engine.tensor
MANY = examples(200)

small = st.integers(0, 6)


@st.composite
def boxes(draw):
    row, byte = draw(small), draw(small)
    return (row, row + draw(st.integers(1, 4)), byte, byte + draw(st.integers(1, 4)))


def cells(box):
    row, row_end, byte, byte_end = box
    return set(itertools.product(range(row, row_end), range(byte, byte_end)))


@given(boxes(), boxes())
@MANY
def test_boxes_overlap_and_cover_as_sets_do(one, two):
    assert overlap(one, two) == bool(cells(one) & cells(two))
    assert covers(one, two) == (cells(one) >= cells(two))


def touched(access, shift=0):
    """(partition, byte of it) on chip, byte in HBM, of everything an access touches."""
    layout, allocation = access.layout, access.allocation
    size = layout.itemsize_bytes
    found = set()
    for index in itertools.product(*map(range, layout.shape)):
        at = access.offset + shift + sum(i * s for i, s in zip(index, layout.strides, strict=True))
        found.update(range(at * size, (at + 1) * size))
    if not layout.on_chip:
        return found
    base = allocation.address_bytes or 0
    pitch = allocation.bytes_per_partition
    return {(allocation.start_partition + b // pitch, base + b % pitch) for b in found}


@st.composite
def on_chip_views(draw):
    pitch = draw(st.integers(8, 24))
    place = draw(st.sampled_from([None, (0, 0), (32, 64)]))
    room = tensor((4, pitch), "bfloat16", draw(st.sampled_from([SBUF, PSUM])), place=place)
    partitions = draw(st.integers(1, 3))
    shape = (partitions, draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    strides = draw(st.integers(-4, 6)), draw(st.integers(-2, 3))
    reach = [stride * (count - 1) for stride, count in zip(strides, shape[1:], strict=True)]
    low, high = sum(min(0, r) for r in reach), sum(max(0, r) for r in reach)
    assume(high - low < pitch)
    start = draw(st.integers(-low, pitch - 1 - high))
    first = draw(st.integers(0, 4 - partitions))
    return view(room, shape, "bfloat16", strides=strides, offset=first * pitch + start)


@given(on_chip_views())
@MANY
def test_a_box_on_chip_is_the_bounding_box_of_what_is_touched(access):
    found = touched(access)
    rows, at = {row for row, _ in found}, {byte for _, byte in found}
    assert on_chip_box(access, 0) == (min(rows), max(rows) + 1, min(at), max(at) + 1)
    assert covers(whole_box(access, 1), on_chip_box(access, 0))


@st.composite
def hbm_views(draw):
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    strides = tuple(draw(st.integers(-9, 12)) for _ in shape)
    reach = [stride * (count - 1) for stride, count in zip(strides, shape, strict=True)]
    low, high = sum(min(0, r) for r in reach), sum(max(0, r) for r in reach)
    offset = draw(st.integers(-low, -low + 30))
    room = tensor((offset + high + 40,), "float32", HBM)
    return view(room, shape, strides=strides, offset=offset)


@given(hbm_views(), hbm_views(), st.integers(0, 9))
@MANY
def test_a_box_in_hbm_holds_everything_that_is_touched(access, first, shift):
    """Whatever access comes first and decides how long a row is."""
    pitch = outer_pitch_bytes(first)
    box = hbm_box(access, shift, pitch)
    assert cells(box) >= {divmod(byte, pitch) for byte in touched(access, shift)}
    assert covers(whole_box(access, pitch), box)


def test_column_blocks_of_a_matrix_do_not_overlap():
    matrix = tensor((64, 1024), region=HBM)
    left, right = (view(matrix, (64, 512), strides=(1024, 1), offset=offset) for offset in (0, 512))
    pitch = outer_pitch_bytes(left)
    one, two = hbm_box(left, 0, pitch), hbm_box(right, 0, pitch)
    assert (one, two) == ((0, 64, 0, 2048), (0, 64, 2048, 4096))
    assert not overlap(one, two)


class Plain:
    """The same promises as a Ledger, kept by looking at everything."""

    def __init__(self):
        self.entries = []  # (box, who, writes)

    def read(self, box, who):
        found = {w for b, w, writes in self.entries if writes and overlap(b, box)}
        self.entries.append((box, who, False))
        return found

    def write(self, box, who):
        writers = {w for b, w, writes in self.entries if writes and overlap(b, box)}
        readers = {w for b, w, writes in self.entries if not writes and overlap(b, box)}
        self.entries = [entry for entry in self.entries if not covers(box, entry[0])]
        self.entries.append((box, who, True))
        return writers, readers


def random_box(rng, scale):
    row, byte = rng.randrange(0, 128, 32), rng.randrange(0, 4000)
    rows = rng.choice([32, 64, 128, 128])
    return (row, row + rows, byte, byte + rng.randint(1, rng.choice(scale)))


@few(1)
@pytest.mark.parametrize("scale", [[4, 64], [64, 4000], [1, 16, 4000]])
@given(seed=st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
def test_a_ledger_finds_what_a_full_search_finds(scale, seed):
    rng = random.Random(seed)  # noqa: S311 (no secret)
    ledger, plain = Ledger(Settled(0, array("d"))), Plain()  # nothing settled: nobody is merged
    for row in range(400):
        box, who = random_box(rng, scale), (row, rng.choice([DMA, DVE, PE]))
        if rng.random() < 0.6:
            results = []
            ledger.read(box, who, results)
            assert set(results) == plain.read(box, who)
        else:
            writers, readers = [], []
            ledger.write(box, who, writers, readers)
            assert (set(writers), set(readers)) == plain.write(box, who)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
def test_merged_readers_keep_the_one_that_is_done_last(seed):
    rng = random.Random(seed)  # noqa: S311 (no secret)
    released = array("d", [rng.random() for _ in range(400)])
    settled = Settled(0, released)
    ledger, plain = Ledger(settled), Plain()
    few = [random_box(rng, [4, 400]) for _ in range(6)]
    for row in range(400):
        settled.rows = row
        box, who = rng.choice(few), (row, rng.choice([DMA, DVE, PE]))
        if rng.random() < 0.9:
            ledger.read(box, who, [])
            plain.read(box, who)
            continue
        readers = []
        ledger.write(box, who, [], readers)
        _, everyone = plain.write(box, who)
        assert set(readers) <= everyone
        for where in {one for _, one in everyone}:
            assert latest(readers, where, released) == latest(everyone, where, released)


def latest(whos, where, released):
    return max((released[row] for row, one in whos if one is where), default=None)


def test_readers_of_one_tile_do_not_pile_up():
    released = array("d", range(1000))
    settled = Settled(0, released)
    ledger = Ledger(settled)
    for row in range(1000):
        settled.rows = row
        ledger.read((0, 128, 0, 64), (row, DVE), [])
    readers = []
    ledger.write((0, 128, 0, 64), (1000, DMA), [], readers)
    assert 999 in {row for row, _ in readers}
    assert len(readers) <= 3


def hazards_of(*instructions, per_tensor=False):
    read_only = read_only_allocations(instructions)
    found = Hazards(read_only, Settled(0, array("d")), per_tensor=per_tensor)
    return [found.waits(one, row) for row, one in enumerate(instructions)]


def rows(whos):
    return {row for row, _ in whos}


def test_read_after_write_write_after_write_and_write_after_read():
    a, b = whole((128, 64)), whole((128, 64))
    write = instruction("memset", DVE, [a])
    read = instruction("tensor_copy", DVE, [b], [a])
    again = instruction("memset", engine.gpsimd, [a])
    found = hazards_of(write, read, again)
    assert rows(found[1].results) == {0}
    assert rows(found[2].writers) == {0}
    assert rows(found[2].readers) == {1}


def test_tensors_placed_at_the_same_address_share_memory():
    one, two = (tensor((128, 64), place=(0, 1024)) for _ in range(2))
    beside = tensor((128, 64), place=(0, 1280))
    psum = tensor((128, 64), region=PSUM, place=(0, 0))
    found = hazards_of(
        instruction("memset", DVE, [view(one, (128, 64))]),
        instruction("memset", DVE, [view(beside, (128, 64))]),
        instruction("memset", DVE, [view(psum, (128, 64))]),
        instruction("tensor_copy", DVE, [whole((128, 64))], [view(two, (128, 64))]),
    )
    assert [rows(waits.writers) for waits in found[:3]] == [set(), set(), set()]
    assert rows(found[3].results) == {0}


def test_automatic_tensors_have_memory_of_their_own():
    found = hazards_of(*(instruction("memset", DVE, [whole((128, 64))]) for _ in range(3)))
    assert all(not any(waits) for waits in found)


def test_an_input_that_is_only_read_takes_no_part():
    data, other = tensor((128, 64), region=HBM), tensor((128, 64), region=HBM)
    load = instruction("dma_copy", DMA, [whole((128, 64))], [view(data, (128, 64))])
    store = instruction("dma_copy", DMA, [view(other, (128, 64))], [whole((128, 64))])
    assert read_only_allocations([load, store]) == {id(data)}
    back = instruction("dma_copy", DMA, [view(data, (128, 64))], [whole((128, 64))])
    assert read_only_allocations([load, back]) == set()
    assert rows(hazards_of(load, back)[1].readers) == {0}


def test_parts_of_a_tensor_are_apart_unless_tensors_are_tracked_whole():
    ring, out = tensor((128, 64)), tensor((256, 64), region=HBM)
    halves = [view(ring, (128, 32), offset=offset) for offset in (0, 32)]
    fills = [instruction("memset", DVE, [half]) for half in halves]
    stores = [
        instruction("dma_copy", DMA, [view(out, (128, 32), strides=(64, 1), offset=at)], [half])
        for at, half in zip((0, 128 * 64), halves, strict=True)
    ]
    apart = hazards_of(*fills, *stores)
    assert [rows(waits.writers) for waits in apart] == [set(), set(), set(), set()]
    assert [rows(waits.results) for waits in apart[2:]] == [{0}, {1}]
    whole_tensors = hazards_of(*fills, *stores, per_tensor=True)
    assert [rows(waits.writers) for waits in whole_tensors] == [set(), {0}, set(), set()]
    assert [rows(waits.results) for waits in whole_tensors[2:]] == [{1}, {1}]


def test_blocks_of_an_output_do_not_wait_for_each_other():
    out = tensor((256, 1024), region=HBM)

    def store(top, left):
        block = view(out, (128, 512), strides=(1024, 1), offset=top * 1024 + left)
        return instruction("dma_copy", DMA, [block], [whole((128, 512))])

    found = hazards_of(store(0, 0), store(0, 512), store(128, 0), store(128, 512), store(64, 256))
    assert [rows(waits.writers) for waits in found] == [set(), set(), set(), set(), {0, 1, 2, 3}]


def test_a_gather_may_read_any_row():
    table = tensor((1000, 64), region=HBM)
    store = instruction("dma_copy", DMA, [view(table, (8, 64), offset=500 * 64)], [whole((8, 64))])
    gathered = view(table, (8, 64))
    plain = instruction("dma_copy", DMA, [whole((8, 64))], [gathered])
    assert rows(hazards_of(store, plain)[1].results) == set()
    gathered.anywhere = True
    assert rows(hazards_of(store, plain)[1].results) == {0}


def test_an_instruction_that_works_in_place_waits_for_others_only_once_it_has_to():
    tile = whole((128, 64))
    in_place = instruction("tensor_scalar", DVE, [tile], [tile])
    found = hazards_of(instruction("memset", DVE, [tile]), in_place, in_place)
    assert rows(found[2].results) == {1}
    assert rows(found[2].readers) <= {1, 2}  # itself, which no schedule waits for


def test_what_a_kernel_gathers_by_data_is_recorded_as_being_anywhere():
    def kernel(table, numbers):
        index = nl.ndarray((32, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(index, numbers)
        tile = nl.ndarray((32, 8), dtype=table.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, table.ap([[8, 32], [1, 8]], vector_offset=index, indirect_dim=0))
        out = nl.ndarray((32, 8), dtype=table.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, tile)
        return out

    done = run(kernel, Spec((100, 8), "float32"), Spec((32, 1), "int32"), values=False)
    flags = [[a.anywhere for a in (*one.writes, *one.reads)] for one in done.trace.instructions()]
    assert flags == [[False, False], [False, True, False], [False, False]]
