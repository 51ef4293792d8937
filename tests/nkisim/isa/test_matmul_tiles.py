"""nc_matmul: tiles of the PE array, transpose mode, tensor indirection, and its limits."""

import ml_dtypes
import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from isa_tiles import refused
from kernel_steps import assert_traces_agree, give, load, result_of
from nkisim.errors import UnsupportedError
from nkisim.running.kernel import run

BFLOAT16 = ml_dtypes.bfloat16


@pytest.fixture
def rng():
    return np.random.default_rng(12)


def small_integers(rng, *shape, dtype=np.float32):
    return rng.integers(-4, 5, size=shape).astype(dtype)


def product(stationary, moving):
    return stationary.astype(np.float64).T @ moving.astype(np.float64)


def test_column_tiles_write_their_own_partitions(rng):
    """Four frames, 32 columns each, side by side in one bank."""
    weights = small_integers(rng, 128, 4, 20, dtype=BFLOAT16)
    b = small_integers(rng, 128, 100, dtype=BFLOAT16)

    def kernel(weights, b):
        stationary, moving = load(weights), load(b)
        psum = nl.ndarray((128, 100), nl.float32, nl.psum)
        for g in range(4):
            for _ in range(2):
                nisa.nc_matmul(
                    psum[nl.ds(32 * g, 20), :],
                    stationary[:, g],
                    moving,
                    tile_size=(128, 32),
                    tile_position=(0, 32 * g),
                )
        return give(psum)

    result = result_of(kernel, weights, b)
    for g in range(4):
        expected = 2 * product(weights[:, g], b)
        np.testing.assert_array_equal(result[32 * g : 32 * g + 20], expected)
        assert np.isnan(result[32 * g + 20 : 32 * g + 32]).all()
    assert_traces_agree(kernel, weights, b)


def test_row_tiles_read_their_own_partitions(rng):
    a, b = small_integers(rng, 128, 8), small_integers(rng, 128, 16)

    def kernel(a, b):
        stationary, moving = load(a), load(b)
        psum = nl.ndarray((8, 16), nl.float32, nl.psum)
        for start in (0, 64):
            rows = slice(start, start + 64)
            tile = {"tile_size": (64, 128), "tile_position": (start, 0)}
            nisa.nc_matmul(psum, stationary[rows], moving[rows], **tile)
        return give(psum)

    for machine in ("trn1", "trn2"):
        np.testing.assert_array_equal(result_of(kernel, a, b, machine=machine), product(a, b))


def tiled(tile_size, tile_position, *, rows=32, columns=8, start=0, dst_start=0):
    def kernel(a, b):
        psum = nl.ndarray((columns, 16), nl.float32, nl.psum, address=(dst_start, 0))
        stationary, moving = load(a, address=(start, 0)), load(b, address=(start, 4096))
        nisa.nc_matmul(psum, stationary, moving, tile_size=tile_size, tile_position=tile_position)

    return kernel, np.ones((rows, columns), np.float32), np.ones((rows, 16), np.float32)


@pytest.mark.parametrize(
    ("case", "limit"),
    [
        (tiled((32, 128), ()), "both as .rows, columns., or neither"),
        (tiled((), (0, 0)), "both as .rows, columns., or neither"),
        (tiled((32,), (0,)), "both as .rows, columns., or neither"),
        (tiled((48, 128), (0, 0)), r"rows of \(32, 64, 128\) on trn2"),
        (tiled((32, 96), (0, 0)), r"columns of \(32, 64, 128\) on trn2"),
        (tiled((64, 128), (32, 0)), "starting at a multiple of their size"),
        (tiled((32, 128), (128, 0)), "starting at a multiple of their size"),
        (tiled((32, 128), (0, 0), rows=64), "as many rows as partitions"),
        (tiled((32, 32), (0, 0), columns=64), "as many columns as elements"),
        (tiled((32, 128), (32, 0)), "puts it at partition 32"),
        (tiled((32, 32), (0, 64), dst_start=32), "puts it at partition 64"),
    ],
)
def test_a_tile_is_refused_for(case, limit):
    with refused("nc_matmul", limit):
        run(*case, machine="trn2")


def test_trn1_has_no_tiles_of_32():
    with refused("nc_matmul", r"rows of \(64, 128\) on trn1"):
        run(*tiled((32, 128), (0, 0)), machine="trn1")


def transpose(a, identity):
    psum = nl.ndarray((a.shape[1], a.shape[0]), a.dtype, nl.psum)
    nisa.nc_matmul(psum, load(a), load(identity), is_transpose=True)
    return give(psum)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, BFLOAT16])
@pytest.mark.parametrize("machine", ["trn2", "trn3"])
def test_transpose_mode_is_exact_to_the_bit(rng, dtype, machine):
    a = rng.normal(size=(48, 20)).astype(dtype)
    a[3, 5], a[7, 1], a[8, 1], a[9, 1] = np.nan, np.inf, -np.inf, -0.0
    result = result_of(transpose, a, np.eye(48, dtype=dtype), machine=machine)
    width = f"u{a.itemsize}"
    np.testing.assert_array_equal(result.view(width), np.ascontiguousarray(a.T).view(width))


def test_transpose_mode_overwrites(rng):
    a = rng.normal(size=(16, 8)).astype(np.float32)

    def kernel(a, identity):
        tile, one = load(a), load(identity)
        psum = nl.ndarray((8, 16), nl.float32, nl.psum)
        for _ in range(2):
            nisa.nc_matmul(psum, tile, one, is_transpose=True)
        return give(psum)

    np.testing.assert_array_equal(result_of(kernel, a, np.eye(16, dtype=np.float32)), a.T)


def test_transpose_mode_on_trn1_is_a_matmul(rng):
    a = rng.normal(size=(16, 8)).astype(BFLOAT16)
    a[0, 0] = np.inf

    def kernel(a, identity):
        psum = nl.ndarray((8, 16), nl.float32, nl.psum)
        nisa.nc_matmul(psum, load(a), load(identity), is_transpose=True)
        return give(psum)

    result = result_of(kernel, a, np.eye(16, dtype=BFLOAT16), machine="trn1")
    np.testing.assert_array_equal(result[1:], a.T[1:].astype(np.float32))
    assert result[0, 0] == np.inf
    assert np.isnan(result[0, 1:]).all()


def test_transpose_mode_needs_an_identity(rng):
    a = rng.normal(size=(16, 8)).astype(np.float32)
    with refused("nc_matmul", "moves stationary to PSUM unchanged"):
        run(transpose, a, 2 * np.eye(16, dtype=np.float32), machine="trn2")
    with refused("nc_matmul", "identity of 16 x 16"):
        run(transpose, a, np.eye(16, 12, dtype=np.float32), machine="trn2")


def test_transpose_mode_keeps_the_type(rng):
    a = rng.normal(size=(16, 8)).astype(BFLOAT16)

    def kernel(a, identity):
        psum = nl.ndarray((8, 16), nl.float32, nl.psum)
        nisa.nc_matmul(psum, load(a), load(identity), is_transpose=True)

    with refused("nc_matmul", "bfloat16 on trn2"):
        run(kernel, a, np.eye(16, dtype=BFLOAT16), machine="trn2")


def test_transpose_mode_does_not_accumulate(rng):
    a = rng.normal(size=(16, 8)).astype(np.float32)

    def kernel(a, identity):
        psum = nl.ndarray((8, 16), nl.float32, nl.psum)
        nisa.nc_matmul(psum, load(a), load(identity), is_transpose=True, accumulate=True)

    with refused("nc_matmul", "one of the two"):
        run(kernel, a, np.eye(16, dtype=np.float32), machine="trn2")


def test_fp8_transposes_are_not_modelled_on_trn2():
    a = np.ones((16, 8), ml_dtypes.float8_e4m3)
    identity = np.eye(16).astype(a.dtype)
    with refused("nc_matmul", "16-bit elements", error=UnsupportedError):
        run(transpose, a, identity, machine="trn2")
    np.testing.assert_array_equal(result_of(transpose, a, identity, machine="trn3"), a.T)


def gathering(a, b, index, elems):
    """stationary gathered along its free dimension; offset i is index[i % 32, i // 32]."""
    stationary = load(a).indirect(load(index), elems)
    psum = nl.ndarray((elems, b.shape[1]), nl.float32, nl.psum)
    nisa.nc_matmul(psum, stationary, load(b))
    return give(psum)


def test_stationary_may_be_gathered_on_trn3(rng):
    a = small_integers(rng, 64, 100, dtype=BFLOAT16)
    b = small_integers(rng, 64, 12, dtype=BFLOAT16)
    offsets = rng.integers(0, 100, size=(2, 40))  # every 32 partitions have their own
    index = np.zeros((64, 2), np.uint16)
    for group in range(2):
        for i, offset in enumerate(offsets[group]):
            index[32 * group + i % 32, i // 32] = offset

    def kernel(a, b, index):
        return gathering(a, b, index, 40)

    picked = np.concatenate([a[32 * g : 32 * g + 32][:, offsets[g]] for g in range(2)])
    result = result_of(kernel, a, b, index, machine="trn3")
    np.testing.assert_array_equal(result, product(picked, b))
    assert_traces_agree(kernel, a, b, index, machine="trn3")
    with refused("nc_matmul", "exists from NeuronCore-v4 on"):
        run(kernel, a, b, index, machine="trn2")


def test_moving_may_be_gathered_on_trn3(rng):
    a = small_integers(rng, 32, 8, dtype=BFLOAT16)
    b = small_integers(rng, 32, 50, dtype=BFLOAT16)
    index = rng.integers(0, 50, size=(32, 1)).astype(np.uint16)

    def kernel(a, b, index):
        psum = nl.ndarray((8, 20), nl.float32, nl.psum)
        whole = {"tile_size": (128, 128), "tile_position": (0, 0)}
        nisa.nc_matmul(psum, load(a), load(b).indirect(load(index), 20), **whole)
        return give(psum)

    result = result_of(kernel, a, b, index, machine="trn3")
    np.testing.assert_array_equal(result, product(a, b[:, index[:20, 0]]))


def test_a_transpose_gathers_stationary_and_not_the_identity(rng):
    a, index = rng.normal(size=(32, 50)).astype(BFLOAT16), np.zeros((32, 1), np.uint16)
    index[:, 0] = rng.permutation(50)[:32]

    def kernel(a, identity, index):
        psum = nl.ndarray((20, 32), nl.bfloat16, nl.psum)
        stationary = load(a).indirect(load(index), 20)
        nisa.nc_matmul(psum, stationary, load(identity), is_transpose=True)
        return give(psum)

    def other(a, identity, index):
        psum = nl.ndarray((50, 32), nl.bfloat16, nl.psum)
        moving = load(identity).indirect(load(index), 32)
        nisa.nc_matmul(psum, load(a), moving, is_transpose=True)

    arrays = (a, np.eye(32, dtype=BFLOAT16), index)
    result = result_of(kernel, *arrays, machine="trn3")
    np.testing.assert_array_equal(result, a[:, index[:20, 0]].T)
    with refused("nc_matmul", "stationary and dst only"):
        run(other, *arrays, machine="trn3")


def test_dst_may_be_scattered_on_trn3(rng):
    a = small_integers(rng, 32, 32, dtype=BFLOAT16)
    b = small_integers(rng, 32, 3, dtype=BFLOAT16)
    index = np.zeros((32, 1), np.uint16)
    index[:3, 0] = [5, 0, 9]

    def kernel(a, b, index):
        psum = nl.ndarray((32, 10), nl.bfloat16, nl.psum)
        nisa.nc_matmul(psum.indirect(load(index), 3), load(a), load(b), accumulate=False)
        return give(psum)

    result = result_of(kernel, a, b, index, machine="trn3").astype(np.float64)
    np.testing.assert_array_equal(result[:, [5, 0, 9]], product(a, b))
    assert np.isnan(result[:, [1, 2, 3, 4, 6, 7, 8]]).all()


def test_a_scattered_dst_needs_a_stated_flag(rng):
    a = small_integers(rng, 32, 32, dtype=BFLOAT16)
    index = np.zeros((32, 1), np.uint16)

    def kernel(a, index):
        psum = nl.ndarray((32, 32), nl.bfloat16, nl.psum)
        nisa.nc_matmul(psum.indirect(load(index), 32), load(a), load(a))

    with refused("nc_matmul", "known on the device only", error=UnsupportedError):
        run(kernel, a, index, machine="trn3")


def indirect_case(*, dtype=BFLOAT16, partitions=32, elems=8, **options):
    def kernel(a, index):
        tile = load(a)
        psum = nl.ndarray((elems, a.shape[1]), nl.float32, nl.psum)
        nisa.nc_matmul(psum, tile.indirect(load(index), elems), tile, **options)

    return kernel, np.ones((partitions, 8), dtype), np.zeros((partitions, 1), np.uint16)


@pytest.mark.parametrize(
    ("case", "limit"),
    [
        (indirect_case(dtype=np.float32), "8- and 16-bit floats"),
        (indirect_case(partitions=48), "multiples of 32 partitions"),
        (indirect_case(elems=40), "the 32 offsets such a group holds"),
        (indirect_case(tile_size=(32, 128), tile_position=(0, 0)), "needs the whole PE array"),
    ],
)
def test_tensor_indirection_is_refused_for(case, limit):
    with refused("nc_matmul", limit):
        run(*case, machine="trn3")


def test_the_index_of_a_gather_is_in_sbuf():
    def kernel(a, index):
        tile, wanted = load(a), nl.ndarray((32, 1), nl.uint16, nl.psum)
        nisa.tensor_copy(wanted, load(index))
        psum = nl.ndarray((8, 8), nl.float32, nl.psum)
        nisa.nc_matmul(psum, tile.indirect(wanted, 8), tile)

    with refused("nc_matmul", "an integer tile in SBUF"):
        run(kernel, *indirect_case()[1:], machine="trn3")


def test_an_offset_outside_of_the_row_is_refused():
    kernel, a, index = indirect_case()
    with pytest.raises(nisa.NkiValidationError, match="a partition has 8 elements"):
        run(kernel, a, index + 8, machine="trn3")


def limits(shape_a, shape_b, shape_dst, dtype=np.float32, dst="float32", other=None):
    def kernel(a, b):
        psum = nl.ndarray(shape_dst, dst, nl.psum)
        nisa.nc_matmul(psum, load(a), load(b))

    return kernel, np.ones(shape_a, dtype), np.ones(shape_b, other or dtype)


@pytest.mark.parametrize(
    ("case", "machine", "limit"),
    [
        (limits((16, 4), (17, 8), (4, 8)), "trn2", "same partitions .K."),
        (limits((16, 129), (16, 8), (128, 8)), "trn2", "128 elements .columns of the PE array."),
        (limits((16, 4), (16, 513), (4, 513)), "trn2", "512 elements on trn2"),
        (limits((16, 4), (16, 4097), (4, 4096)), "trn3", "4096 elements on trn3"),
        (limits((16, 4), (16, 8), (5, 8)), "trn2", "4 partitions x 8 elements"),
        (limits((16, 4), (16, 8), (4, 9)), "trn2", "4 partitions x 8 elements"),
        (limits((16, 4), (16, 8), (4, 8), other=BFLOAT16), "trn2", "pair only with each other"),
        (limits((16, 4), (16, 8), (4, 8), ml_dtypes.float8_e4m3fn), "trn2", "from NeuronCore-v4"),
        (
            limits((16, 4), (16, 8), (4, 8), ml_dtypes.float8_e4m3fn, other=ml_dtypes.float8_e4m3),
            "trn3",
            "one of the two",
        ),
        (limits((16, 4), (16, 8), (4, 8), dst="bfloat16"), "trn2", "float32 on trn2"),
        (limits((16, 4), (16, 8), (4, 8), np.int32), "trn2", "bfloat16, float16, float32"),
    ],
)
def test_operands_are_refused_for(case, machine, limit):
    with refused("nc_matmul", limit):
        run(*case, machine=machine)


def test_a_bfloat16_dst_takes_twice_the_columns_on_trn3():
    kernel, a, b = limits((16, 4), (16, 8192), (4, 8192), BFLOAT16, dst="bfloat16")
    run(kernel, a, b, machine="trn3")


def test_operands_are_in_sbuf_and_dst_in_psum():
    a = np.ones((16, 4), np.float32)

    def into_sbuf(a):
        tile = load(a)
        nisa.nc_matmul(nl.ndarray((4, 4), nl.float32, nl.sbuf), tile, tile)

    def from_hbm(a):
        nisa.nc_matmul(nl.ndarray((4, 4), nl.float32, nl.psum), a, load(a))

    with refused("nc_matmul", "dst may live in psum"):
        run(into_sbuf, a, machine="trn2")
    with refused("nc_matmul", "stationary may live in sbuf"):
        run(from_hbm, a, machine="trn2")


def test_the_performance_mode_is_an_enum_member():
    kernel, a, b = limits((16, 4), (16, 8), (4, 8))

    def wrong(a, b):
        psum = nl.ndarray((4, 8), nl.float32, nl.psum)
        nisa.nc_matmul(psum, load(a), load(b), perf_mode="double_row")

    run(kernel, a, b, machine="trn2")
    with refused("nc_matmul", "a nisa.matmul_perf_mode"):
        run(wrong, a, b, machine="trn2")
