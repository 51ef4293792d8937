"""Manual addresses: buffers are reused freely, and what was overwritten is not read."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.errors import AliasError
from nkisim.machine import TRN2
from nkisim.memory.aliasing import Neighbours, box_of
from nkisim.memory.layout import MemoryRegion
from nkisim.memory.placement import Memory
from nkisim.running.kernel import run
from nkisim.tensors.tensor import NkiTensor
from repetition import examples


def shapes_only(body):
    """Run `body` as a kernel without arguments, data and results."""

    def kernel():
        body()

    run(kernel, machine="trn2", values=False)


def placed(name, address, size=16, partitions=64, region=nl.sbuf):
    return nl.ndarray((partitions, size), "float32", region, name, address)


def written(tile):
    nisa.memset(tile, 1.0)
    return tile


def check_read(tile):
    target = nl.ndarray(tile.shape, tile.dtype)
    nisa.tensor_copy(target, tile)


def test_reading_what_another_tensor_has_overwritten_is_refused():
    def body():
        old = written(placed("old", (0, 0)))
        check_read(old)
        written(placed("new", (0, 0)))
        check_read(old)

    with pytest.raises(AliasError, match="read of tensor 'old' after tensor 'new'") as refusal:
        shapes_only(body)
    assert refusal.value.limit == "partitions 0..63, bytes 0..63 belong to 'new' now"
    assert "place the tensors apart" in refusal.value.remedy


def test_reuse_after_the_last_read_is_how_buffers_rotate():
    def body():
        for i in range(6):
            tile = placed(f"tile{i}", (0, 64 * (i % 2)))
            check_read(written(tile))

    shapes_only(body)


def test_allocating_over_a_tensor_is_not_yet_writing_over_it():
    def body():
        old = written(placed("old", (0, 0)))
        new = placed("new", (0, 0))
        check_read(old)
        check_read(written(new))

    shapes_only(body)


def test_a_tensor_is_its_own_again_after_it_is_rewritten():
    def body():
        ping, pong = placed("ping", (0, 0)), placed("pong", (0, 0))
        for _ in range(3):
            check_read(written(ping))
            check_read(written(pong))

    shapes_only(body)


@pytest.mark.parametrize("last", [16, 15])
def test_a_tensor_may_be_rewritten_in_parts(last):
    """The halves of the rows and of the columns together are the whole tensor, or nearly."""

    def body():
        old, new = placed("old", (0, 0)), placed("new", (0, 0))
        written(old)
        written(new)
        nisa.memset(old[0:32, 0:8], 2.0)
        nisa.memset(old[32:64, 0:8], 2.0)
        nisa.memset(old[:, 8:last], 2.0)
        check_read(old[:, 0:last])
        check_read(old)

    if last == 16:
        shapes_only(body)
    else:
        with pytest.raises(AliasError, match=r"bytes 60..63 belong to 'new'"):
            shapes_only(body)


def test_a_tensor_may_be_rewritten_column_by_column():
    def body(columns):
        old, new = written(placed("old", (0, 0))), placed("new", (0, 0))
        written(new)
        for first in columns:
            nisa.memset(old[:, first::2], 2.0)
        check_read(old)

    shapes_only(lambda: body((0, 1)))
    with pytest.raises(AliasError, match=r"bytes 4..7 belong"):
        shapes_only(lambda: body((0,)))


def test_only_the_overlapping_part_is_lost():
    def body(start, stop):
        old = written(placed("old", (0, 0)))  # bytes 0..63
        written(placed("new", (0, 40)))  # bytes 40..103
        check_read(old[:, start:stop])

    shapes_only(lambda: body(0, 10))  # bytes 0..39
    for start, stop in ((0, 11), (10, 11), (15, 16)):
        with pytest.raises(AliasError, match=r"bytes 40..103 belong to 'new' now"):
            shapes_only(lambda: body(start, stop))  # noqa: B023 (called at once)


def test_other_partitions_are_other_memory():
    def body(address):
        old = written(placed("old", (0, 0)))
        written(placed("new", address, partitions=32))
        check_read(old)

    shapes_only(lambda: body((64, 0)))
    with pytest.raises(AliasError, match=r"partitions 32..63"):
        shapes_only(lambda: body((32, 0)))


def test_views_count_the_partitions_they_touch():
    def body(first):
        old = written(placed("old", (0, 0)))
        new = placed("new", (0, 0))
        written(new[32:64])
        check_read(old[first : first + 32])

    shapes_only(lambda: body(0))
    with pytest.raises(AliasError, match=r"partitions 32..63"):
        shapes_only(lambda: body(32))


def test_a_strided_read_beside_the_lost_columns_is_fine():
    def body(first):
        old = written(placed("old", (0, 0)))
        new = placed("new", (0, 0))
        nisa.memset(new[:, 1::2], 0.0)
        check_read(old[:, first::2])

    shapes_only(lambda: body(0))
    with pytest.raises(AliasError, match="read of tensor 'old'"):
        shapes_only(lambda: body(1))


def test_automatic_and_manual_tensors_never_overlap():
    def body():
        automatic = written(nl.ndarray((64, 16), "float32"))
        written(placed("manual", (0, 0)))
        check_read(automatic)

    shapes_only(body)


def test_sbuf_and_psum_are_different_memories():
    def body():
        old = written(placed("old", (0, 0)))
        written(placed("new", (0, 0), region=nl.psum))
        check_read(old)

    shapes_only(body)


def test_bytes_are_compared_not_elements():
    """Bytes 32..35 hold element 8 of fp32, and elements 16 and 17 of bf16."""

    def body(elem):
        old = nl.ndarray((64, 32), "bfloat16", name="old", address=(0, 0))
        nisa.memset(old, 0.0)
        new = placed("new", (0, 0))
        nisa.memset(new[:, 8:9], 0.0)
        check_read(old[:, elem : elem + 1])

    for elem in (15, 18):
        shapes_only(lambda: body(elem))  # noqa: B023 (called at once)
    for elem in (16, 17):
        with pytest.raises(AliasError, match=r"bytes 32..35 belong to 'new' now"):
            shapes_only(lambda: body(elem))  # noqa: B023 (called at once)


@pytest.mark.parametrize("columns", [8, 64, 500])
def test_tensors_may_interleave_element_by_element(columns):
    """Even elements of one tensor and odd ones of another share no byte, however many there are."""

    def body(first):
        old, new = (placed(name, (0, 0), size=2 * columns) for name in ("old", "new"))
        written(old[:, 0::2])
        written(new[:, 1::2])
        check_read(old[:, 0::2])
        check_read(old[:, first::2])

    shapes_only(lambda: body(0))
    with pytest.raises(AliasError, match="read of tensor 'old' after tensor 'new'"):
        shapes_only(lambda: body(1))


def place(draw):
    """A tensor in a corner of SBUF (128 bytes of 66 partitions): its address and its shape.

    Every second byte of 96 is more runs than are kept as boxes.
    """
    first = draw(st.sampled_from([0, 32]))
    size = draw(st.sampled_from([4, 16, 32, 96]))
    return (first, draw(st.integers(0, (128 - size) // 4)) * 4), (draw(st.integers(1, 34)), size)


def part(draw, shape):
    """A view's key: some partitions, and bytes with a step."""
    rows = sorted(draw(st.lists(st.integers(0, shape[0]), min_size=2, max_size=2, unique=True)))
    first = draw(st.integers(0, shape[1] - 1))
    end = draw(st.integers(first + 1, shape[1]))
    return slice(*rows), slice(first, end, draw(st.sampled_from([1, 1, 2, 5])))


@examples(60)
@given(st.data())
def test_a_read_is_refused_exactly_when_another_tensor_wrote_one_of_its_bytes_last(data):
    """Against a table of the last writer of every byte of every partition."""
    memory = Memory(TRN2, 0, with_values=False, precise=True)
    places = [place(data.draw) for _ in range(data.draw(st.integers(2, 4)))]
    storages = [
        memory.allocate(shape, "uint8", MemoryRegion.sbuf, None, address)
        for address, shape in places
    ]
    owner = np.full((128, 128), -1)
    for _ in range(data.draw(st.integers(1, 12))):
        who = data.draw(st.integers(0, len(places) - 1))
        (partition, byte), shape = places[who]
        rows, columns = part(data.draw, shape)
        mine = owner[partition : partition + shape[0], byte : byte + shape[1]][rows, columns]
        view = tensor_of(storages[who])[rows, columns]
        neighbours = view.storage.neighbours or Neighbours(box_of(view.storage))
        if data.draw(st.booleans()):
            neighbours.note_write(view.storage, view.layout, view.offset)
            mine[...] = who
        elif set(np.unique(mine)) <= {-1, who}:
            neighbours.check_read(view.storage, view.layout, view.offset)
        else:
            with pytest.raises(AliasError, match=f"read of tensor '{view.name}'"):
                neighbours.check_read(view.storage, view.layout, view.offset)


def tensor_of(storage):
    return NkiTensor(storage.shape, storage.dtype, storage, storage.allocation.region)


def test_the_data_of_a_reused_buffer_is_that_of_the_tensor():
    """A new tensor at an old address starts as poison, whatever the old one held."""

    def kernel():
        out = nl.ndarray((64, 16), "float32", nl.shared_hbm)
        written(placed("old", (0, 0)))
        new = placed("new", (0, 0))
        nisa.memset(new[:, 0:4], 7.0)
        nisa.dma_copy(out[:, 0:4], new[:, 0:4])
        fresh = placed("fresh", (0, 0))
        nisa.dma_copy(out[:, 4:8], nl.ndarray((64, 4), "float32"))
        written(fresh)
        nisa.dma_copy(out[:, 8:16], fresh[:, 0:8])
        return out

    found = run(kernel, machine="trn2").outputs
    assert np.all(found[:, 0:4] == 7)
    assert np.all(np.isnan(found[:, 4:8]))
    assert np.all(found[:, 8:16] == 1)
