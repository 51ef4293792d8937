"""Memory: capacities to the byte, peaks worked out by hand, names, and poison."""

import itertools
import re

import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.errors import MemoryLimitError, NkiValidationError
from nkisim.running.host_arrays import Spec
from nkisim.running.kernel import run

pytestmark = pytest.mark.usefixtures("logical_cores_of_one")  # loops on one core

# Usable SBUF bytes per partition: 192, 224 and 256 KiB less 16 KiB, and 8 B less from trn2 on.
SBUF_BYTES = {
    "trn1": (192 - 16) * 1024,
    "trn2": (224 - 16) * 1024 - 8,
    "trn3": (256 - 16) * 1024 - 8,
}
BANK_BYTES, BANKS = 2048, 8

every_machine = pytest.mark.parametrize("machine", SBUF_BYTES)


def shapes_only(body, machine="trn2"):
    """Run `body` as a kernel without arguments, data and results."""

    def kernel():
        body()

    return run(kernel, machine=machine, values=False)


def touch(tile):
    """Use a tile without meeting the size limits of an instruction."""
    nisa.memset(tile[:, 0:1], 0)


@every_machine
def test_one_tensor_may_fill_sbuf_and_not_a_byte_more(machine):
    capacity = SBUF_BYTES[machine]
    shapes_only(lambda: touch(nl.ndarray((128, capacity), "uint8")), machine)
    with pytest.raises(MemoryLimitError, match=f"needs {capacity + 1} bytes per p") as refusal:
        shapes_only(lambda: nl.ndarray((128, capacity + 1), "uint8"), machine)
    assert refusal.value.limit == f"sbuf of {machine} holds {capacity} bytes per partition"
    assert refusal.value.remedy


@every_machine
def test_live_tensors_together_may_fill_sbuf_and_not_a_byte_more(machine):
    def body(extra):
        first = nl.ndarray((128, SBUF_BYTES[machine] - 400), "uint8", name="first")
        second = nl.ndarray((128, 400 + extra), "uint8", name="second")
        touch(first)
        touch(second)
        nisa.tensor_copy(second[:, 0:1], first[:, 0:1])

    run_of = shapes_only(lambda: body(0), machine)
    assert run_of.memory.sbuf_peak_bytes_per_partition == SBUF_BYTES[machine]
    with pytest.raises(MemoryLimitError, match="alive in sbuf") as refusal:
        shapes_only(lambda: body(1), machine)
    assert (
        refusal.value.limit == f"sbuf of {machine} holds {SBUF_BYTES[machine]} bytes per partition"
    )
    first = rf"'first' \(\S+:\d+\) {SBUF_BYTES[machine] - 400} B"
    assert re.search(rf"{first}, 'second' \(\S+:\d+\) 401 B", str(refusal.value))


@every_machine
def test_a_manual_address_may_end_at_the_last_byte_of_sbuf(machine):
    def body(size):
        touch(nl.ndarray((128, size), "uint8", address=(0, SBUF_BYTES[machine] - 16)))

    shapes_only(lambda: body(16), machine)
    with pytest.raises(MemoryLimitError, match="128 partitions x 17 bytes at") as refusal:
        shapes_only(lambda: body(17), machine)
    assert (
        refusal.value.limit == f"128 partitions x {SBUF_BYTES[machine]} bytes in sbuf of {machine}"
    )


@every_machine
def test_manual_and_automatic_tensors_share_the_capacity(machine):
    def body(extra):
        manual = nl.ndarray((128, 4000), "uint8", address=(0, 0))
        automatic = nl.ndarray((128, SBUF_BYTES[machine] - 4000 + extra), "uint8")
        touch(manual)
        touch(automatic)

    shapes_only(lambda: body(0), machine)
    with pytest.raises(MemoryLimitError, match="alive in sbuf"):
        shapes_only(lambda: body(1), machine)


@every_machine
def test_one_tensor_may_fill_psum_and_not_a_byte_more(machine):
    capacity = BANKS * BANK_BYTES
    use = shapes_only(lambda: touch(nl.ndarray((128, capacity // 4), "float32", nl.psum)), machine)
    assert use.memory.psum_peak_banks == BANKS
    with pytest.raises(MemoryLimitError, match=f"needs {capacity + 1} bytes") as refusal:
        shapes_only(lambda: nl.ndarray((128, capacity + 1), "uint8", nl.psum), machine)
    assert refusal.value.limit == f"psum of {machine} holds {capacity} bytes per partition"


@every_machine
def test_psum_is_given_out_in_whole_banks(machine):
    def body(tiles, elems):
        live = [nl.ndarray((128, elems), "float32", nl.psum) for _ in range(tiles)]
        for tile in (*live, *live):
            touch(tile)

    assert shapes_only(lambda: body(8, 1), machine).memory.psum_peak_banks == 8
    assert shapes_only(lambda: body(8, 512), machine).memory.psum_peak_banks == 8
    assert shapes_only(lambda: body(4, 513), machine).memory.psum_peak_banks == 8
    for tiles, elems in ((9, 1), (5, 513)):
        with pytest.raises(MemoryLimitError, match="alive in psum") as refusal:
            shapes_only(lambda: body(tiles, elems), machine)  # noqa: B023 (called at once)
        assert refusal.value.limit == f"psum of {machine} holds 16384 bytes per partition"


@every_machine
def test_a_manual_psum_address_ends_with_the_last_bank(machine):
    def body(size, bank=7):
        touch(nl.ndarray((128, size), "uint8", nl.psum, address=(0, bank * BANK_BYTES)))

    shapes_only(lambda: body(BANK_BYTES), machine)
    for size, bank in ((BANK_BYTES + 1, 7), (1, 8)):
        with pytest.raises(MemoryLimitError, match=f"x {size} bytes at"):
            shapes_only(lambda: body(size, bank), machine)  # noqa: B023 (called at once)


BAD_ADDRESSES = {
    (0, 1024): (nl.psum, "byte a multiple of 2048 B (a PSUM bank)"),
    (0, 2): (nl.sbuf, "byte a multiple of 4 B"),
    (16, 0): (nl.sbuf, "partition a multiple of 32"),
    (0, -4): (nl.sbuf, "byte a multiple of 4 B"),
    (-32, 0): (nl.sbuf, "partition a multiple of 32"),
    (96, 0): (nl.sbuf, "128 partitions x"),  # 64 partitions from 96 on end at 160
    (0, 0): (nl.shared_hbm, "manual placement exists for SBUF and PSUM"),
    (0,): (nl.sbuf, "a pair: first partition, first byte in the partition"),
}


@pytest.mark.parametrize("address", BAD_ADDRESSES)
def test_addresses_are_aligned_and_inside(address):
    region, limit = BAD_ADDRESSES[address]
    with pytest.raises(NkiValidationError, match=r"nl.ndarray: ") as refusal:
        shapes_only(lambda: nl.ndarray((64, 4), "float32", region, address=address))
    assert limit in refusal.value.limit


def test_more_partitions_than_there_are_are_refused():
    shapes_only(lambda: nl.ndarray((128, 1), "float32"))
    for region in (nl.sbuf, nl.psum):
        with pytest.raises(MemoryLimitError, match="129 partitions") as refusal:
            shapes_only(lambda: nl.ndarray((129, 1), "float32", region))  # noqa: B023
        assert refusal.value.limit == f"128 partitions in {region.value}"


def test_hbm_takes_any_first_dimension():
    shapes_only(lambda: nl.ndarray((5000, 3), "float32", nl.hbm))


@pytest.mark.parametrize("shape", [(), (0, 4), (4, -1)])
def test_a_shape_has_positive_sizes(shape):
    with pytest.raises(NkiValidationError, match="every size at least 1 element"):
        shapes_only(lambda: nl.ndarray(shape, "float32"))


def test_a_shape_has_integer_sizes():
    with pytest.raises(TypeError, match="integer"):
        shapes_only(lambda: nl.ndarray((128, 2.5), "float32"))


def test_a_double_buffered_copy_loop_holds_two_loads_and_one_result():
    """Tile i + 1 is loaded before tile i is cast and stored.

    Load of 512 fp32: 512 * 4 = 2048 B. Result of 512 bf16: 512 * 2 = 1024 B.
    While tile i is cast, both loads and the result are alive: 2 * 2048 + 1024 = 5120 B.
    While the result is stored, load i is dead: 2048 + 1024 = 3072 B.
    """

    def kernel(x):
        out = nl.ndarray(x.shape, "bfloat16", nl.shared_hbm)
        loaded = nl.ndarray((128, 512), "float32")
        nisa.dma_copy(loaded, x[0])
        for i in range(6):
            following = nl.ndarray((128, 512), "float32")
            if i + 1 < 6:
                nisa.dma_copy(following, x[i + 1])
            cast = nl.ndarray((128, 512), "bfloat16")
            nisa.tensor_copy(cast, loaded)
            nisa.dma_copy(out[i], cast)
            loaded = following
        return out

    use = run(kernel, Spec((6, 128, 512), "float32"), machine="trn2", values=False).memory
    assert use.sbuf_peak_bytes_per_partition == 5120
    assert use.psum_peak_banks == 0
    assert use.hbm_bytes == 6 * 128 * 512 * 2  # the output; arguments are the caller's


def test_a_tiled_matmul_holds_weights_inputs_and_two_banks():
    """out[128, 1536] = w[256, 128].T @ x[256, 1536] with K in 2 tiles and N in 3 tiles.

    Weights: 2 tiles of 128 bf16, 2 * 256 = 512 B, alive to the last N tile.
    Inputs of one N tile: 2 tiles of 512 bf16, 1024 B each, dead after their matmul.
    In the first matmul both inputs are alive: 512 + 2 * 1024 = 2560 B.
    The tile before is evicted (512 fp32, 2048 B) after the first matmul of the next, when one
    input is left: 512 + 1024 + 2048 = 3584 B, the peak, and 2 banks.
    """

    def kernel(w, x):
        out = nl.ndarray((128, 1536), "float32", nl.shared_hbm)
        weights = []
        for k in range(2):
            weights.append(nl.ndarray((128, 128), w.dtype))
            nisa.dma_copy(weights[k], w[128 * k : 128 * k + 128])
        banks = []
        for n in range(3):
            inputs = []
            for k in range(2):
                inputs.append(nl.ndarray((128, 512), x.dtype))
                nisa.dma_copy(inputs[k], x[128 * k : 128 * k + 128, 512 * n : 512 * n + 512])
            banks.append(nl.ndarray((128, 512), "float32", nl.psum))
            nisa.nc_matmul(banks[n], weights[0], inputs[0])
            if n > 0:
                evict(out, banks, n - 1)
            nisa.nc_matmul(banks[n], weights[1], inputs[1])
        evict(out, banks, 2)
        return out

    def evict(out, banks, n):
        tile = nl.ndarray((128, 512), "float32")
        nisa.tensor_copy(tile, banks[n])
        nisa.dma_copy(out[:, 512 * n : 512 * n + 512], tile)

    rng = np.random.default_rng(0)
    w = rng.integers(-4, 5, (256, 128)).astype(np.float32)
    x = rng.integers(-4, 5, (256, 1536)).astype(np.float32)
    specs = Spec((256, 128), "bfloat16"), Spec((256, 1536), "bfloat16")
    for machine in ("trn1", "trn2"):
        use = run(kernel, *specs, machine=machine, values=False).memory
        assert use.sbuf_peak_bytes_per_partition == 512 + 1024 + 2048
        assert use.psum_peak_banks == 2
    done = run(kernel, w, x, machine="trn2")  # fp32 tiles take twice the bytes of bf16
    assert done.memory.sbuf_peak_bytes_per_partition == 2 * 512 + 2 * 1024 + 2048
    assert np.array_equal(done.outputs, w.T @ x)


@pytest.mark.parametrize("values", [True, False])
def test_a_loop_keeps_what_it_shares_with_the_code_around_it(values):
    """Manual tensors at bytes 0..1000 and 512..1512 (1000 B each): their union is 1512 B.

    In the loop `kept` (40 B) was allocated before: it lives through the whole body. `early` (100 B)
    and `late` (60 B) follow each other. Peak: 1512 + 40 + 100 = 1652 B. A tensor that is only ever
    allocated (`idle`) takes no bytes.
    """

    def kernel(x):
        out = nl.ndarray(x.shape, "float32", nl.shared_hbm)
        low = nl.ndarray((128, 250), "float32", address=(0, 0))
        high = nl.ndarray((128, 250), "float32", address=(0, 512))
        nl.ndarray((128, 10000), "float32", name="idle")
        kept = nl.ndarray((128, 10), "float32")
        nisa.memset(low, 0.0)
        nisa.memset(high, 0.0)

        def body(i):
            early = nl.ndarray((128, 25), "float32")
            late = nl.ndarray((128, 15), "float32")
            nisa.dma_copy(early[:, 0:10], x[nl.ds(i, 128)])
            nisa.tensor_copy(kept, early[:, 0:10])
            nisa.memset(late, 1.0)
            nisa.dma_copy(out[nl.ds(i, 128)], late[:, 0:10])

        nl.fori_loop(0, 384, body, step=128)
        return out

    x = np.zeros((384, 10), np.float32) if values else Spec((384, 10), "float32")
    use = run(kernel, x, machine="trn2", values=values).memory
    assert use.sbuf_peak_bytes_per_partition == 1512 + 40 + 100


def test_nested_loops_keep_a_tile_of_the_outer_body_through_the_inner_one():
    """`outer` (80 B) is last used in the middle of the inner body, and lives to its end."""

    def kernel(x):
        def inner_body(_):
            first = nl.ndarray((128, 5), "float32")  # 20 B
            nisa.tensor_copy(first[:, 0:1], outer[0][:, 0:1])
            second = nl.ndarray((128, 10), "float32")  # 40 B
            nisa.memset(second, 0.0)

        def outer_body(_):
            outer[0] = nl.ndarray((128, 20), "float32")
            nisa.dma_copy(outer[0], x)
            nl.fori_loop(0, 3, inner_body)

        outer = [None]
        nl.fori_loop(0, 2, outer_body)

    use = run(kernel, Spec((128, 20), "float32"), machine="trn2", values=False).memory
    assert use.sbuf_peak_bytes_per_partition == 80 + 40


def test_a_tensor_is_given_back_after_its_last_use():
    def chain(length, overlap):
        tiles = [nl.ndarray((128, 256), "float32") for _ in range(length)]
        nisa.memset(tiles[0], 0.0)
        for before, after in itertools.pairwise(tiles):
            nisa.tensor_copy(after, before)
        if overlap:
            nisa.tensor_copy(tiles[-1], tiles[0])

    peak = shapes_only(lambda: chain(7, overlap=False)).memory.sbuf_peak_bytes_per_partition
    assert peak == 2 * 1024  # a source and its copy
    peak = shapes_only(lambda: chain(7, overlap=True)).memory.sbuf_peak_bytes_per_partition
    assert peak == 3 * 1024  # and the first tile, which waits for its last use


def test_sizes_are_rounded_up_to_four_bytes():
    def body():
        tiles = [nl.ndarray((128, size), "uint8") for size in (1, 4, 5)]
        for tile in (*tiles, *tiles):
            touch(tile)

    assert shapes_only(body).memory.sbuf_peak_bytes_per_partition == 4 + 4 + 8


def test_unused_tensors_need_no_room():
    def body():
        nl.ndarray((128, 200_000), "uint8")
        nl.ndarray((128, 200_000), "uint8", name="also")
        nl.ndarray((128, 100_000), "uint8", address=(0, 0))

    assert shapes_only(body).memory.sbuf_peak_bytes_per_partition == 0


def test_names_are_unique():
    def body():
        nl.ndarray((4, 4), "float32", name="tile")
        nl.ndarray((4, 4), "float32", nl.hbm, name="tile")

    with pytest.raises(NkiValidationError, match="second tensor named 'tile'") as refusal:
        shapes_only(body)
    assert refusal.value.limit == "tensor names are unique within a kernel"


def test_a_generated_name_steps_aside_for_a_given_one():
    def kernel():
        nl.ndarray((4, 4), "float32", name="sbuf_1")
        names.append(nl.ndarray((4, 4), "float32").name)
        names.append(nl.ndarray((4, 4), "float32", name=None).name)

    names = []
    run(kernel, machine="trn2", values=False)
    assert len({"sbuf_1", *names}) == 3


def test_a_loop_body_names_its_tensor_once():
    def kernel():
        def body(_):
            nisa.memset(nl.ndarray((4, 4), "float32", name="in_the_body"), 0.0)

        nl.fori_loop(0, 3, body)

    assert run(kernel, machine="trn2").trace.static_count == 1


POISON = {
    "float32": np.nan,
    "bfloat16": np.nan,
    "float16": np.nan,
    "float8_e4m3": np.nan,
    "float8_e5m2": np.nan,
    "int8": 4,
    "uint8": 4,
    "int16": 4,
    "uint16": 4,
    "int32": 4,
    "uint32": 4,
}


@pytest.mark.parametrize("dtype", POISON)
@pytest.mark.parametrize("region", [nl.sbuf, nl.hbm, nl.shared_hbm])
def test_memory_nobody_wrote_reads_as_poison(dtype, region):
    def kernel():
        out = nl.ndarray((4, 6), dtype, nl.shared_hbm)
        nisa.dma_copy(out, nl.ndarray((4, 6), dtype, region))
        return out

    found = run(kernel, machine="trn2").outputs.astype(np.float32)
    assert np.array_equal(found, np.full((4, 6), POISON[dtype], np.float32), equal_nan=True)


def test_gaps_that_no_matmul_wrote_are_read_as_nan():
    """Evicting a tile with unwritten columns and partitions is legal, and shows."""

    def kernel(w, x):
        out = nl.ndarray((64, 12), "float32", nl.shared_hbm)
        left, right = nl.ndarray((8, 32), "float32"), nl.ndarray((8, 5), "float32")
        nisa.dma_copy(left, w)
        nisa.dma_copy(right, x)
        bank = nl.ndarray((64, 12), "float32", nl.psum)
        nisa.nc_matmul(bank[32:64, 1:11:2], left, right)
        tile = nl.ndarray((64, 12), "float32")
        nisa.tensor_copy(tile, bank)
        nisa.dma_copy(out, tile)
        return out

    rng = np.random.default_rng(3)
    w, x = (rng.integers(-3, 4, (8, n)).astype(np.float32) for n in (32, 5))
    expected = np.full((64, 12), np.nan, np.float32)
    expected[32:64, 1:11:2] = w.T @ x
    assert np.array_equal(run(kernel, w, x, machine="trn2").outputs, expected, equal_nan=True)
