"""nc_transpose and dma_transpose against NumPy, and their rules."""

import ml_dtypes
import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from isa_tiles import Psum, after, assert_shape_only_agrees, issued, refused, run_tiles, zeros
from kernel_steps import assert_traces_agree, give, load, result_of
from nkisim.device_rules.rule import DeviceRule
from nkisim.enums import dge_mode, engine, oob_mode
from nkisim.errors import UnsupportedError
from nkisim.running.kernel import run

BFLOAT16 = ml_dtypes.bfloat16


@pytest.fixture
def rng():
    return np.random.default_rng(15)


def random_bits(rng, dtype, *shape):
    """Every bit pattern, NaNs included."""
    itemsize = np.dtype(dtype).itemsize
    codes = rng.integers(0, 256, size=(*shape[:-1], shape[-1] * itemsize), dtype=np.uint8)
    return codes.view(dtype)


def same_bits(one, two):
    return np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(two).tobytes()


def transpose(**options):
    return lambda dst, data: nisa.nc_transpose(dst, data, **options)


@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16, np.int32, np.uint16])
@pytest.mark.parametrize("machine", ["trn2", "trn3"])
def test_the_tensor_engine_transposes_bits_into_psum(rng, dtype, machine):
    data = random_bits(rng, dtype, 128, 96)
    run_ = run_tiles(transpose(), Psum(zeros(96, 128, dtype=dtype)), data, machine=machine)
    assert issued(run_, "nc_transpose").engine is engine.tensor
    assert same_bits(run_.outputs[0], data.T)


@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16, np.uint8])
@pytest.mark.parametrize("machine", ["trn1", "trn2"])
@pytest.mark.parametrize("places", [(Psum, Psum), (np.asarray, Psum), (np.asarray, np.asarray)])
def test_the_vector_engine_transposes_small_tiles_anywhere(rng, dtype, machine, places):
    data = random_bits(rng, dtype, 32, 20)
    tiles = places[0](zeros(20, 32, dtype=dtype)), places[1](data)
    run_ = run_tiles(transpose(), *tiles, machine=machine)
    assert issued(run_, "nc_transpose").engine is engine.vector
    assert same_bits(run_.outputs[0], data.T)


def test_the_vector_engine_may_write_psum_when_asked(rng):
    data = rng.normal(size=(16, 8)).astype(np.float32)
    issue = transpose(engine=engine.vector)
    np.testing.assert_array_equal(after(issue, Psum(zeros(8, 16)), data)[0], data.T)


def test_free_axes_are_flattened(rng):
    data = rng.normal(size=(30, 4, 6)).astype(np.float32)

    def issue(dst, tile):
        nisa.nc_transpose(dst, tile[:, 1:4, ::2])

    result = after(issue, Psum(zeros(9, 30)), data)[0]
    np.testing.assert_array_equal(result, data[:, 1:4, ::2].reshape(30, 9).T)


def test_a_square_tile_is_transposed_in_place(rng):
    data = rng.normal(size=(32, 32)).astype(np.float32)
    result = after(lambda tile: nisa.nc_transpose(tile, tile), data)[0]
    np.testing.assert_array_equal(result, data.T)


def test_the_tensor_engine_of_trn1_multiplies_by_an_identity(rng):
    """Finite values come out as they are; an infinity makes NaN of its row of dst."""
    data = rng.normal(size=(16, 8)).astype(np.float32)
    data[3, 2] = np.inf
    result = after(transpose(), Psum(zeros(8, 16)), data, machine="trn1")[0]
    others = [0, 1, 3, 4, 5, 6, 7]
    np.testing.assert_array_equal(result[others], data.T[others])
    assert result[2, 3] == np.inf
    assert np.isnan(np.delete(result[2], 3)).all()


def test_a_transpose_leaves_no_matmul_history(rng):
    data = rng.normal(size=(16, 16)).astype(np.float32)

    def kernel(x):
        tile = load(x)
        psum = nl.ndarray((16, 16), nl.float32, nl.psum)
        nisa.nc_transpose(psum, tile)
        nisa.nc_matmul(psum, tile, tile, accumulate=True)

    with refused("nc_matmul", "trn2 adds to matmul results only"):
        run(kernel, data, machine="trn2")


@pytest.mark.parametrize(
    ("issue", "tiles", "limit"),
    [
        (transpose(), (zeros(40, 30), zeros(30, 40)), "32 partitions x 32 elements"),
        (
            transpose(engine=engine.tensor),
            (zeros(16, 16), zeros(16, 16)),
            "the Tensor engine reads SBUF and writes PSUM",
        ),
        (
            transpose(engine=engine.tensor),
            (Psum(zeros(16, 16)), Psum(zeros(16, 16))),
            "the Tensor engine reads SBUF and writes PSUM",
        ),
        (transpose(), (Psum(zeros(128, 8)), zeros(8, 130)), "128 partitions x 128 elements"),
        (transpose(), (Psum(zeros(9, 8)), zeros(8, 10)), "10 partitions x 8 elements"),
        (transpose(), (Psum(zeros(8, 8)), zeros(8, 8, dtype=BFLOAT16)), "the same dtype"),
        (transpose(engine=engine.scalar), (zeros(8, 8),) * 2, "engine.tensor, engine.vector"),
    ],
)
def test_nc_transpose_is_refused_for(issue, tiles, limit):
    with refused("nc_transpose", limit):
        after(issue, *tiles)


def test_a_transposed_tile_stays_in_one_bank():
    def issue(data):
        psum = nl.ndarray((8, 1024), nl.float32, nl.psum)
        nisa.nc_transpose(psum[:, 500:516], data)

    with refused("nc_transpose", "one PSUM bank of 2048 bytes"):
        after(issue, zeros(16, 8))


def test_fp8_on_the_tensor_engine_of_trn2_is_not_modelled():
    data = np.ones((16, 16), ml_dtypes.float8_e4m3)
    with refused("nc_transpose", "16-bit elements", error=UnsupportedError):
        after(transpose(), Psum(data), data)
    assert same_bits(after(transpose(), data, data)[0], data)


def test_nc_transpose_agrees_with_a_shape_only_run():
    assert_shape_only_agrees(transpose(), Psum(zeros(96, 128)), zeros(128, 96))
    assert_shape_only_agrees(transpose(), zeros(20, 32), zeros(32, 20))


AXES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}


def dma(x, **options):
    """dma_transpose of a whole HBM tensor."""
    axes = AXES[len(x.shape)]
    tile = nl.ndarray(tuple(x.shape[axis] for axis in axes), x.dtype, nl.sbuf)
    nisa.dma_transpose(tile, x, **options)
    return give(tile)


@pytest.mark.parametrize("shape", [(200, 96), (40, 3, 96), (40, 3, 2, 96)])
@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16, np.int16])
@pytest.mark.parametrize("stated", [True, False])
def test_dma_transpose_swaps_the_outermost_and_the_last_axis(rng, shape, dtype, stated):
    x = random_bits(rng, dtype, *shape)
    axes = AXES[len(shape)]

    def kernel(x):
        return dma(x, axes=axes if stated else None)

    assert same_bits(result_of(kernel, x, machine="trn1"), x.transpose(axes))
    assert_traces_agree(kernel, x)


def test_dma_transpose_takes_strided_and_on_chip_sources(rng):
    x = rng.normal(size=(24, 10)).astype(np.float32)

    def kernel(x):
        from_hbm = nl.ndarray((5, 12), nl.float32, nl.sbuf)
        nisa.dma_transpose(from_hbm, x[0:24:2, 0:10:2])
        tile, from_sbuf = load(x), nl.ndarray((100, 24), nl.float32, nl.sbuf)
        nisa.dma_transpose(from_sbuf[37:47], tile)
        permuted = nl.ndarray((24, 10), nl.float32, nl.sbuf)
        nisa.dma_transpose(permuted, x.permute((1, 0)))
        back = nl.ndarray((10, 24), nl.float32, nl.shared_hbm)
        nisa.dma_copy(back, from_sbuf[37:47])
        return give(from_hbm), back, give(permuted)

    strided, on_chip, permuted = result_of(kernel, x)
    np.testing.assert_array_equal(strided, x[0:24:2, 0:10:2].T)
    np.testing.assert_array_equal(on_chip, x.T)
    np.testing.assert_array_equal(permuted, x)


@pytest.mark.parametrize("shape", [(16, 128), (2, 8, 64), (16, 5, 3, 100), (1, 7, 32, 20)])
def test_hardware_descriptors_transpose(rng, shape):
    x = rng.normal(size=shape).astype(BFLOAT16)
    result = result_of(lambda x: dma(x, dge_mode=dge_mode.hwdge), x)
    np.testing.assert_array_equal(result, x.transpose(AXES[len(shape)]))


def gathered(table, numbers, *, rows, inner, **options):
    """Rows of a table by number, transposed, over a tile of -1."""
    shape = (rows, *inner)
    axes = AXES[len(shape)]
    strides = [int(np.prod(inner[i + 1 :])) for i in range(len(inner))]
    pattern = [[int(np.prod(inner)), rows], *zip(strides, inner, strict=True)]
    tile = nl.ndarray(tuple(shape[axis] for axis in axes), table.dtype, nl.sbuf)
    nisa.memset(tile, -1.0)
    index = load(numbers)
    nisa.dma_transpose(tile, table.ap(pattern, vector_offset=index), **options)
    return give(tile)


@pytest.mark.parametrize(
    ("index_shape", "rows", "inner"),
    [
        ((128, 1), 128, (64,)),
        ((48, 1), 32, (64,)),
        ((128, 2), 208, (16,)),
        ((32, 1), 32, (1, 3, 8)),
    ],
)
def test_rows_are_gathered_column_by_column_of_the_index(rng, index_shape, rows, inner):
    table = rng.normal(size=(300, *inner)).astype(BFLOAT16)
    numbers = rng.integers(0, 300, size=index_shape).astype(np.uint32)

    def kernel(table, numbers):
        return gathered(table, numbers, rows=rows, inner=inner)

    picked = table[numbers.T.reshape(-1)[:rows]]
    expected = picked.transpose(AXES[picked.ndim])
    np.testing.assert_array_equal(result_of(kernel, table, numbers), expected)
    assert_traces_agree(kernel, table, numbers)
    with refused("dma_transpose", "from NeuronCore-v3 on"):
        run(kernel, table, numbers, machine="trn1")


def test_rows_outside_are_an_error_or_leave_their_column(rng, monkeypatch):
    table = rng.normal(size=(20, 8)).astype(BFLOAT16)
    numbers = rng.integers(0, 20, size=(16, 1)).astype(np.uint32)
    numbers[5] = 20

    def kernel(table, numbers, **options):
        return gathered(table, numbers, rows=16, inner=(8,), **options)

    with pytest.raises(nisa.NkiValidationError, match="row 20 "):
        run(kernel, table, numbers, machine="trn2")
    picked = np.full((16, 8), -1, BFLOAT16)
    inside = numbers[:, 0] < 20
    picked[inside] = table[numbers[inside, 0]]

    def skipping(table, numbers):
        return kernel(table, numbers, oob_mode=oob_mode.skip)

    with refused("dma_transpose", "transpose-gather-skip"):  # it aborts the DMA of a device
        run(skipping, table, numbers, machine="trn2")
    monkeypatch.setattr(DeviceRule, "concerns", lambda *_: False)  # as documented
    np.testing.assert_array_equal(result_of(skipping, table, numbers), picked.T)


def test_a_source_shifted_outside_is_skipped(rng):
    x, start = rng.normal(size=(8, 4)).astype(np.float32), np.array([[6]], np.int32)

    def kernel(x, start, **options):
        tile = nl.ndarray((4, 4), nl.float32, nl.sbuf)
        nisa.memset(tile, -1.0)
        first = load(start)
        nisa.dma_transpose(tile, x.ap([[4, 4], [1, 4]], scalar_offset=first), **options)
        return give(tile)

    np.testing.assert_array_equal(result_of(kernel, x, start - 3), x[3:7].T)
    with refused("dma_transpose", "must stay inside"):
        run(kernel, x, start, machine="trn2")
    skipping = run(lambda x, s: kernel(x, s, oob_mode=oob_mode.skip), x, start, machine="trn2")
    np.testing.assert_array_equal(skipping.outputs, np.full((4, 4), -1, np.float32))


def direct(shape, dst=None, dtype=BFLOAT16, **options):
    def kernel(x):
        axes = AXES.get(len(shape), tuple(range(len(shape))))
        tile = nl.ndarray(dst or tuple(shape[axis] for axis in axes), nl.bfloat16, nl.sbuf)
        machine = tile if dtype is BFLOAT16 else tile.view(np.dtype(dtype).name)
        nisa.dma_transpose(machine, x, **options)

    return kernel, np.ones(shape, dtype)


def indirect(index_shape, rows, inner, *, dtype=BFLOAT16, index=np.uint32, **options):
    def kernel(table, numbers):
        return gathered(table, numbers, rows=rows, inner=inner, **options)

    return kernel, np.ones((300, *inner), dtype), np.zeros(index_shape, index)


HWDGE = {"dge_mode": dge_mode.hwdge}


@pytest.mark.parametrize(
    ("case", "machine", "limit"),
    [
        (direct((8, 4), axes=(0, 1)), "trn2", r"\(1, 0\), \(2, 1, 0\), \(3, 1, 2, 0\)"),
        (direct((2, 2, 2, 2, 2)), "trn2", r"\(1, 0\), \(2, 1, 0\), \(3, 1, 2, 0\)"),
        (direct((8, 4), dst=(4, 1, 8)), "trn2", r"exactly \(4, 8\)"),
        (direct((8, 4), dst=(8, 4)), "trn2", r"exactly \(4, 8\)"),
        (direct((8, 4), dst=(4, 4), dtype=np.uint8), "trn2", "2 or 4 bytes"),
        (direct((8, 4), dge_mode=dge_mode.swdge), "trn2", "dge_mode.unknown or hwdge"),
        (direct((8, 4), dge_mode=dge_mode.none), "trn2", "dge_mode.unknown or hwdge"),
        (direct((16, 4), **HWDGE), "trn1", "from NeuronCore-v3 on"),
        (direct((32, 4), **HWDGE), "trn2", r"src.shape\[0\] is 16"),
        (direct((3, 16, 4), **HWDGE), "trn2", r"src.shape\[0\] divides 16"),
        (direct((2, 7, 4), **HWDGE), "trn2", r"16 divides src.shape\[0\]"),
        (direct((8, 4), oob_mode=oob_mode.skip), "trn2", "src has a run-time offset"),
        (direct((8, 4), priority=1), "trn2", "from NeuronCore-v4 on"),
        (direct((8, 4), dge_mode="hwdge"), "trn2", "a member of nisa.dge_mode"),
        (indirect((16, 1), 16, (8,), dge_mode=dge_mode.hwdge), "trn2", "unknown or swdge"),
        (indirect((16, 1), 16, (2, 3, 8)), "trn2", "dimension 1 or 2 is 1"),
        (indirect((16, 1), 16, (8,), dtype=np.float32), "trn2", "2 bytes"),
        (indirect((16, 1), 12, (8,)), "trn2", "a multiple of 16 rows"),
        (indirect((16, 1), 16, (8,), index=np.int32), "trn2", "uint32"),
        (indirect((24, 1), 16, (8,)), "trn2", "a multiple of 16 partitions"),
        (indirect((64, 2), 16, (8,)), "trn2", "128 if there is more than one column"),
    ],
)
def test_dma_transpose_is_refused_for(case, machine, limit):
    with refused("dma_transpose", limit):
        run(*case, machine=machine)


def test_dma_transpose_writes_sbuf_of_the_same_type():
    x = np.ones((8, 4), np.float32)

    def to_hbm(x):
        nisa.dma_transpose(nl.ndarray((4, 8), nl.float32, nl.shared_hbm), x)

    def cast(x):
        nisa.dma_transpose(nl.ndarray((4, 8), nl.bfloat16, nl.sbuf), x)

    with refused("dma_transpose", "dst may live in sbuf"):
        run(to_hbm, x, machine="trn2")
    with refused("dma_transpose", "the same dtype"):
        run(cast, x, machine="trn2")
