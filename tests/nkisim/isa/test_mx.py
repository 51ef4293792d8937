"""quantize_mx and nc_matmul_mx against NumPy written from the format, and their rules."""

import ml_dtypes
import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from isa_tiles import refused
from kernel_steps import assert_traces_agree, give, load, result_of
from nkisim.running.kernel import run

BFLOAT16 = ml_dtypes.bfloat16
ELEMENTS = {
    "float8_e4m3fn_x4": ml_dtypes.float8_e4m3fn,
    "float8_e5m2_x4": ml_dtypes.float8_e5m2,
    "float4_e2m1fn_x4": ml_dtypes.float4_e2m1fn,
}
LARGEST_EXPONENT = {"float8_e4m3fn_x4": 8, "float8_e5m2_x4": 15}


@pytest.fixture
def rng():
    return np.random.default_rng(20)


def scale_partition(row):
    """Row r of the scales, for partitions 8 r .. 8 r + 7, is the (r % 4)th of quadrant r // 4."""
    return 32 * (row // 4) + row % 4


def unpacked(words, dtype):
    """[P, F, 4] values of packed words, element 0 in the lowest bits."""
    bits = 8 if dtype.startswith("float8") else 4
    codes = [(words >> (bits * q)) & (2**bits - 1) for q in range(4)]
    return np.stack(codes, axis=-1).astype(np.uint8).view(ELEMENTS[dtype]).astype(np.float64)


def dequantised(words, dtype, codes):
    """[P, F, 4] values of packed words with uint8 scales that lie as in SBUF."""
    values = unpacked(words, dtype)
    for partition in range(len(words)):
        code = codes[scale_partition(partition // 8)].astype(np.int64)
        values[partition] *= 2.0 ** (code[: words.shape[1], None] - 127)
    return values


def random_words(rng, dtype, *shape):
    """Packed words of finite values."""
    element = ELEMENTS[dtype]
    values = rng.integers(-3, 4, size=(*shape, 4)).astype(element).view(np.uint8).astype(np.uint32)
    bits = 8 if dtype.startswith("float8") else 4
    words = sum(values[..., q] << (bits * q) for q in range(4))
    return words.astype(np.uint32 if bits == 8 else np.uint16)


def quantize(x, dtype="float8_e4m3fn_x4", scale="uint8", rows=None):
    src = load(x)
    words = nl.ndarray((x.shape[0], x.shape[1] // 4), dtype, nl.sbuf)
    scales = nl.ndarray((rows or x.shape[0], x.shape[1] // 4), scale, nl.sbuf)
    nisa.memset(scales.view(nl.uint8), 9)
    nisa.quantize_mx(words, src, scales)
    return give(words.view(nl.uint32)), give(scales.view(nl.uint8))


def test_a_group_up_to_3_has_exponent_minus_6_and_code_121():
    x = np.zeros((32, 4), BFLOAT16)
    x[5, 2] = -3.0
    words, scales = result_of(quantize, x, machine="trn3")
    assert scales[0, 0] == 121
    assert unpacked(words, "float8_e4m3fn_x4")[5, 0, 2] == -3.0 * 2**6


@pytest.mark.parametrize("dtype", ["float8_e4m3fn_x4", "float8_e5m2_x4"])
@pytest.mark.parametrize("source", [BFLOAT16, np.float16])
@pytest.mark.parametrize("partitions", [32, 64, 128])
def test_groups_of_8_partitions_and_4_elements_share_a_scale(rng, dtype, source, partitions):
    spread = 2.0 ** rng.integers(-12, 12, size=(partitions, 24))
    x = (rng.normal(size=(partitions, 24)) * spread).astype(source)

    def kernel(x):
        return quantize(x, dtype)

    words, scales = result_of(kernel, x, machine="trn3")
    values = unpacked(words, dtype)
    for row in range(partitions // 8):
        for column in range(6):
            rows, columns = slice(8 * row, 8 * row + 8), slice(4 * column, 4 * column + 4)
            group = x[rows, columns].astype(np.float64)
            exponent = np.floor(np.log2(np.abs(group).max())) - (LARGEST_EXPONENT[dtype] - 1)
            assert scales[scale_partition(row), column] == exponent + 127
            expected = (group / 2**exponent).astype(np.float32).astype(ELEMENTS[dtype])
            np.testing.assert_array_equal(values[rows, column], expected.astype(np.float64))
    untouched = sorted(
        set(range(partitions)) - {scale_partition(r) for r in range(partitions // 8)}
    )
    assert (scales[untouched] == 9).all()
    assert_traces_agree(kernel, x, machine="trn3")


def test_a_group_of_zeros_has_the_smallest_scale():
    words, scales = result_of(quantize, np.zeros((32, 8), BFLOAT16), machine="trn3")
    np.testing.assert_array_equal(words, 0)
    np.testing.assert_array_equal(scales[:4], 0)


def test_a_scale_does_not_get_smaller_than_the_smallest():
    """2**-120 would need the exponent -127, 2**-130 an exponent that no code stands for."""
    x = np.zeros((32, 8), BFLOAT16)
    x[0, 0], x[0, 4] = 2.0**-120, 2.0**-130
    words, scales = result_of(quantize, x, machine="trn3")
    assert scales[0].tolist() == [0, 0]
    values = unpacked(words, "float8_e4m3fn_x4")[0]
    assert (values[0, 0], values[1, 0]) == (2.0**7, 2.0**-3)


def test_a_group_with_no_number_in_it_has_no_scale():
    x = np.ones((32, 4), BFLOAT16)
    x[0, 0], x[8, 1] = np.nan, np.inf
    words, scales = result_of(quantize, x, machine="trn3")
    assert scales[:4, 0].tolist() == [255, 255, 120, 120]
    _, powers = result_of(lambda x: quantize(x, scale="float8_e8m0fnu"), x, machine="trn3")
    np.testing.assert_array_equal(powers, scales)
    assert np.isnan(unpacked(words, "float8_e4m3fn_x4")[:16]).all()


def test_a_scale_tile_may_hold_powers_of_two(rng):
    x = rng.normal(size=(32, 16)).astype(BFLOAT16)
    _, codes = result_of(quantize, x, machine="trn3")
    _, powers = result_of(lambda x: quantize(x, scale="float8_e8m0fnu"), x, machine="trn3")
    np.testing.assert_array_equal(powers, codes)


def test_32_partitions_need_four_rows_of_scales(rng):
    x = rng.normal(size=(32, 16)).astype(BFLOAT16)
    _, full = result_of(quantize, x, machine="trn3")
    _, four = result_of(lambda x: quantize(x, rows=4), x, machine="trn3")
    np.testing.assert_array_equal(four, full[:4])


def packed_scales(x, y):
    """The scales of two tiles in one: those of x at rows 0..3 of a quadrant, of y at 4..7."""
    scales = nl.ndarray((x.shape[0], 4), nl.uint8, nl.sbuf)
    nisa.memset(scales, 9)
    for data, first in ((x, 0), (y, 4)):
        words = nl.ndarray((x.shape[0], 4), nl.float8_e5m2_x4, nl.sbuf)
        nisa.quantize_mx(words, load(data), scales[first:])
    return give(scales)


def test_scales_of_several_tiles_share_a_tile(rng):
    x, y = (rng.normal(size=(2, 64, 16)) * [[[1]], [[64]]]).astype(BFLOAT16)

    def alone(x):
        return quantize(x, "float8_e5m2_x4")[1]

    both = result_of(packed_scales, x, y, machine="trn3")
    for data, first in ((x, 0), (y, 4)):
        scales = result_of(alone, data, machine="trn3")
        for quadrant in (0, 32):
            rows = slice(quadrant + first, quadrant + first + 4)
            np.testing.assert_array_equal(both[rows], scales[quadrant : quadrant + 4])
    assert_traces_agree(packed_scales, x, y, machine="trn3")


def multiply(dtypes, dst="float32", **options):
    def kernel(a, b, a_scale, b_scale):
        stationary, moving = load(a).view(dtypes[0]), load(b).view(dtypes[1])
        psum = nl.ndarray((a.shape[1], b.shape[1]), dst, nl.psum)
        nisa.nc_matmul_mx(psum, stationary, moving, load(a_scale), load(b_scale), **options)
        return give(psum)

    return kernel


def operands(rng, dtypes, partitions, columns, streamed):
    a = random_words(rng, dtypes[0], partitions, columns)
    b = random_words(rng, dtypes[1], partitions, streamed)
    scales = [
        rng.integers(124, 131, size=(partitions, n)).astype(np.uint8) for n in (columns, streamed)
    ]
    return a, b, *scales


@pytest.mark.parametrize(
    "dtypes",
    [
        ("float8_e4m3fn_x4", "float8_e4m3fn_x4"),
        ("float8_e5m2_x4", "float8_e4m3fn_x4"),
        ("float4_e2m1fn_x4", "float8_e5m2_x4"),
        ("float4_e2m1fn_x4", "float4_e2m1fn_x4"),
    ],
)
@pytest.mark.parametrize("partitions", [32, 64, 128])
def test_it_multiplies_dequantised_values(rng, dtypes, partitions):
    """Values are small integers and scales near 1: every product and sum is exact."""
    arrays = operands(rng, dtypes, partitions, 10, 24)
    left = dequantised(arrays[0], dtypes[0], arrays[2])
    right = dequantised(arrays[1], dtypes[1], arrays[3])
    expected = np.einsum("kiq,kjq->ij", left, right)
    kernel = multiply(dtypes)
    np.testing.assert_array_equal(result_of(kernel, *arrays, machine="trn3"), expected)
    assert_traces_agree(kernel, *arrays, machine="trn3")


def test_64_partitions_read_scales_from_partitions_0_and_32_on(rng):
    """Scales elsewhere are not looked at."""
    dtypes = ("float8_e5m2_x4", "float8_e5m2_x4")
    arrays = operands(rng, dtypes, 64, 6, 8)
    before = result_of(multiply(dtypes), *arrays, machine="trn3")
    used = [0, 1, 2, 3, 32, 33, 34, 35]
    for scales in arrays[2:]:
        scales[np.setdiff1d(np.arange(64), used)] = 255
    np.testing.assert_array_equal(result_of(multiply(dtypes), *arrays, machine="trn3"), before)
    arrays[2][33] += 1
    assert (result_of(multiply(dtypes), *arrays, machine="trn3") != before).any()


def test_it_accumulates_and_rounds_like_any_matmul(rng):
    dtypes = ("float8_e4m3fn_x4", "float8_e4m3fn_x4")
    arrays = operands(rng, dtypes, 32, 6, 8)

    def kernel(a, b, a_scale, b_scale):
        tiles = load(a).view(dtypes[0]), load(b).view(dtypes[1]), load(a_scale), load(b_scale)
        psum = nl.ndarray((6, 8), nl.bfloat16, nl.psum)
        for flag in (False, None, True):
            nisa.nc_matmul_mx(psum, *tiles, accumulate=flag)
        return give(psum)

    left = dequantised(arrays[0], dtypes[0], arrays[2])
    right = dequantised(arrays[1], dtypes[1], arrays[3])
    single = np.einsum("kiq,kjq->ij", left, right).astype(np.float32)
    total = single.astype(BFLOAT16)
    for _ in range(2):
        total = (total.astype(np.float32) + single).astype(BFLOAT16)
    np.testing.assert_array_equal(result_of(kernel, *arrays, machine="trn3"), total)


def test_accumulate_true_on_unwritten_elements_is_refused(rng):
    dtypes = ("float8_e4m3fn_x4", "float8_e4m3fn_x4")
    with refused("nc_matmul_mx", "trn3 adds to written values only"):
        run(multiply(dtypes, accumulate=True), *operands(rng, dtypes, 32, 6, 8), machine="trn3")


def test_scales_may_be_wider_than_the_data(rng):
    dtypes = ("float8_e4m3fn_x4", "float8_e4m3fn_x4")
    a, b, a_scale, b_scale = operands(rng, dtypes, 32, 6, 8)
    narrow = result_of(multiply(dtypes), a, b, a_scale, b_scale, machine="trn3")
    wide = np.concatenate([a_scale, np.full((32, 5), 255, np.uint8)], axis=1)
    result = result_of(multiply(dtypes), a, b, wide, b_scale, machine="trn3")
    np.testing.assert_array_equal(result, narrow)


def test_rows_of_the_array_are_tiled(rng):
    dtypes = ("float8_e4m3fn_x4", "float8_e4m3fn_x4")
    arrays = operands(rng, dtypes, 32, 6, 8)

    def kernel(a, b, a_scale, b_scale):
        psum = nl.ndarray((6, 8), nl.float32, nl.psum)
        place = {"tile_size": (32, 128), "tile_position": (64, 0)}
        nisa.nc_matmul_mx(
            psum,
            load(a, address=(64, 0)).view(dtypes[0]),
            load(b, address=(64, 256)).view(dtypes[1]),
            load(a_scale, address=(64, 512)),
            load(b_scale, address=(64, 768)),
            **place,
        )
        return give(psum)

    expected = result_of(multiply(dtypes), *arrays, machine="trn3")
    np.testing.assert_array_equal(result_of(kernel, *arrays, machine="trn3"), expected)


def fp8_error(values):
    """Half a step of e4m3 for every value: 2**-4 of it, or of a subnormal, 2**-10 x scale.

    A scale is at most the largest magnitude of its group over 2**7.
    """
    return 2.0**-4 * np.abs(values) + 2.0**-10 * np.abs(values).max() / 2**7


def test_what_is_quantised_is_multiplied(rng):
    a, b = (rng.normal(size=(2, 128, 4 * 16))).astype(BFLOAT16)

    def kernel(a, b):
        tiles = []
        for x in (a, b):
            words = nl.ndarray((128, 16), nl.float8_e4m3fn_x4, nl.sbuf)
            scales = nl.ndarray((128, 16), nl.float8_e8m0fnu, nl.sbuf)
            nisa.quantize_mx(words, load(x), scales)
            tiles.append((words, scales))
        psum = nl.ndarray((16, 16), nl.float32, nl.psum)
        nisa.nc_matmul_mx(psum, tiles[0][0], tiles[1][0], tiles[0][1], tiles[1][1])
        return give(psum)

    left, right = (x.astype(np.float64).reshape(128, 16, 4) for x in (a, b))
    wide = [np.abs(x) + fp8_error(x) for x in (left, right)]
    magnitude = np.einsum("kiq,kjq->ij", *wide)
    allowed = magnitude - np.einsum("kiq,kjq->ij", np.abs(left), np.abs(right))
    allowed += 512 * np.finfo(np.float32).eps * magnitude  # sums of 512 products in fp32
    exact = np.einsum("kiq,kjq->ij", left, right)
    error = np.abs(result_of(kernel, a, b, machine="trn3") - exact)
    assert (error <= allowed).all()
    assert error.max() > 0


def quantize_case(shape=(32, 16), dst=None, scale=None, dtype=BFLOAT16, start=0, address=0):
    def kernel(x):
        words = nl.ndarray(dst or (shape[0], shape[1] // 4), nl.float8_e4m3fn_x4, nl.sbuf)
        place = {"address": (address, 0)}
        scales = nl.ndarray(scale or (shape[0], shape[1] // 4), nl.uint8, nl.sbuf, **place)
        nisa.quantize_mx(words, load(x), scales[start:])

    return kernel, np.ones(shape, dtype)


@pytest.mark.parametrize(
    ("case", "machine", "limit"),
    [
        (quantize_case(), "trn2", "from NeuronCore-v4 on"),
        (quantize_case((48, 16)), "trn3", "a multiple of 32 partitions"),
        (quantize_case((32, 18), dst=(32, 4), scale=(32, 4)), "trn3", "4 times the elements"),
        (quantize_case(dst=(32, 5)), "trn3", "4 times the elements"),
        (quantize_case(scale=(32, 3)), "trn3", "4 times the elements"),
        (quantize_case(dst=(64, 4)), "trn3", "same number of partitions"),
        (quantize_case(dtype=np.float32), "trn3", "bfloat16, float16"),
        (quantize_case(scale=(3, 4)), "trn3", "4 partitions or more"),
        (quantize_case((64, 16), scale=(35, 4)), "trn3", "36 partitions or more"),
        (quantize_case(start=2), "trn3", "starting 0, 4, 8, 12 after src"),
        (quantize_case(start=16), "trn3", "starting 0, 4, 8, 12 after src"),
        (quantize_case(address=32), "trn3", "starting 0, 4, 8, 12 after src"),
    ],
)
def test_quantize_mx_is_refused_for(case, machine, limit):
    with refused("quantize_mx", limit):
        run(*case, machine=machine)


def test_quantize_mx_has_no_fp4_result():
    def kernel(x):
        words = nl.ndarray((32, 4), nl.float4_e2m1fn_x4, nl.sbuf)
        nisa.quantize_mx(words, load(x), nl.ndarray((32, 4), nl.uint8, nl.sbuf))

    with refused("quantize_mx", "float8_e4m3fn_x4, float8_e5m2_x4"):
        run(kernel, np.ones((32, 16), BFLOAT16), machine="trn3")


def matmul_case(a=(32, 6), b=(32, 8), a_scale=None, b_scale=None, dst=None, **options):
    def kernel(x, y, x_scale, y_scale):
        psum = nl.ndarray(dst or (a[1], b[1]), options.pop("dst_dtype", "float32"), nl.psum)
        tiles = load(x).view(nl.float8_e5m2_x4), load(y).view(nl.float8_e5m2_x4)
        nisa.nc_matmul_mx(psum, *tiles, load(x_scale), load(y_scale), **options)

    shapes = (a, b, a_scale or a, b_scale or b)
    kinds = (np.uint32, np.uint32, np.uint8, np.uint8)
    return kernel, *(np.zeros(shape, kind) for shape, kind in zip(shapes, kinds, strict=True))


@pytest.mark.parametrize(
    ("case", "machine", "limit"),
    [
        (matmul_case(), "trn2", "from NeuronCore-v4 on"),
        (matmul_case((48, 6), (48, 8)), "trn3", "a multiple of 32 partitions"),
        (matmul_case((32, 6), (64, 8)), "trn3", "same partitions .K."),
        (matmul_case((32, 7)), "trn3", "an even number"),
        (matmul_case((32, 130), dst=(128, 8)), "trn3", "128 elements"),
        (matmul_case(b=(32, 4097), dst=(6, 4096)), "trn3", "4096 elements"),
        (matmul_case(dst=(6, 9)), "trn3", "6 partitions x 8 elements"),
        (matmul_case(dst_dtype="float16"), "trn3", "bfloat16 or float32"),
        (matmul_case(a_scale=(32, 5)), "trn3", "one for each packed element of stationary"),
        (matmul_case(b_scale=(3, 8)), "trn3", "4 partitions or more"),
        (
            matmul_case(tile_size=(32, 32), tile_position=(0, 0)),
            "trn3",
            "row tiles: 128 columns, starting at column 0",
        ),
        (matmul_case(tile_size=(32, 128)), "trn3", "both as .rows, columns., or neither"),
    ],
)
def test_nc_matmul_mx_is_refused_for(case, machine, limit):
    with refused("nc_matmul_mx", limit):
        run(*case, machine=machine)
