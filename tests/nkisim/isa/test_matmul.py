"""nc_matmul against NumPy: values, accumulation element by element, strided views, tiles."""

import ml_dtypes
import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from isa_tiles import refused
from kernel_steps import assert_traces_agree, give, load, result_of
from nkisim.errors import AliasError
from nkisim.running.kernel import run

BFLOAT16 = ml_dtypes.bfloat16
E4M3, E5M2, E4M3FN = ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def small_integers(rng, *shape, dtype=np.float32):
    """Values whose products and sums of a few hundred are exact in every type used here."""
    return rng.integers(-4, 5, size=shape).astype(dtype)


def product(stationary, moving):
    return stationary.astype(np.float64).T @ moving.astype(np.float64)


def multiply(a, b, dst_dtype=nl.float32, **options):
    stationary, moving = load(a), load(b)
    psum = nl.ndarray((a.shape[1], b.shape[1]), dst_dtype, nl.psum)
    nisa.nc_matmul(psum, stationary, moving, **options)
    return give(psum)


@pytest.mark.parametrize(
    ("left", "right", "machine"),
    [
        (np.float32, np.float32, "trn1"),
        (BFLOAT16, BFLOAT16, "trn1"),
        (np.float16, BFLOAT16, "trn2"),
        (E4M3, BFLOAT16, "trn2"),
        (E4M3, E5M2, "trn2"),
        (E4M3FN, E5M2, "trn3"),
    ],
)
def test_it_is_stationary_transposed_times_moving(rng, left, right, machine):
    a = small_integers(rng, 128, 96, dtype=left)
    b = small_integers(rng, 128, 512, dtype=right)
    result = result_of(multiply, a, b, machine=machine)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, product(a, b))


def test_sums_are_as_good_as_float32(rng):
    a = rng.normal(size=(128, 64)).astype(np.float32)
    b = rng.normal(size=(128, 200)).astype(np.float32)
    magnitude = np.abs(a).astype(np.float64).T @ np.abs(b).astype(np.float64)
    rounding = 128 * np.finfo(np.float32).eps  # one rounding for each of K sums and products
    error = np.abs(result_of(multiply, a, b) - product(a, b))
    assert (error <= rounding * magnitude).all()


@pytest.mark.parametrize("flags", [lambda _i: None, lambda i: i > 0], ids=["default", "explicit"])
def test_k_accumulates_over_several_matmuls(rng, flags):
    a, b = small_integers(rng, 300, 40), small_integers(rng, 300, 70)

    def kernel(a, b):
        psum = nl.ndarray((40, 70), nl.float32, nl.psum)
        for i, start in enumerate((0, 128, 256)):
            rows = slice(start, min(start + 128, 300))
            nisa.nc_matmul(psum, load(a[rows]), load(b[rows]), accumulate=flags(i))
        return give(psum)

    np.testing.assert_array_equal(result_of(kernel, a, b), product(a, b))
    assert_traces_agree(kernel, a, b)


def test_accumulate_false_starts_again(rng):
    a, b = small_integers(rng, 32, 8), small_integers(rng, 32, 16)

    def kernel(a, b):
        stationary, moving = load(a), load(b)
        psum = nl.ndarray((8, 16), nl.float32, nl.psum)
        for flag in (False, True, False, None):
            nisa.nc_matmul(psum, stationary, moving, accumulate=flag)
        return give(psum)

    np.testing.assert_array_equal(result_of(kernel, a, b), 2 * product(a, b))


def test_overlapping_rectangles_accumulate_element_by_element(rng):
    """The convolution pattern: at the borders, moving and dst shrink together."""
    a, b = small_integers(rng, 16, 4), small_integers(rng, 16, 8)

    def kernel(a, b):
        stationary, moving = load(a), load(b)
        psum = nl.ndarray((4, 8), nl.float32, nl.psum)
        nisa.nc_matmul(psum[:, 1:8], stationary, moving[:, 0:7])
        nisa.nc_matmul(psum[:, 0:7], stationary, moving[:, 1:8])
        return give(psum)

    single = product(a, b)
    expected = np.zeros((4, 8))
    expected[:, 1:8] += single[:, 0:7]
    expected[:, 0:7] += single[:, 1:8]
    np.testing.assert_array_equal(result_of(kernel, a, b), expected)


def test_elements_no_matmul_wrote_stay_unwritten(rng):
    a, b = small_integers(rng, 16, 4), small_integers(rng, 16, 6)

    def kernel(a, b):
        psum = nl.ndarray((4, 8), nl.float32, nl.psum)
        nisa.nc_matmul(psum[:, 1:7], load(a), load(b))
        return give(psum)

    result = result_of(kernel, a, b)
    np.testing.assert_array_equal(np.isnan(result), np.arange(8)[None].repeat(4, 0) % 7 == 0)


def test_a_new_tensor_on_the_same_bank_has_no_history(rng):
    a, b = small_integers(rng, 16, 4), small_integers(rng, 16, 6)

    def kernel(a, b):
        stationary, moving = load(a), load(b)
        results = []
        for _ in range(2):
            psum = nl.ndarray((4, 6), nl.float32, nl.psum, address=(0, 2048))
            nisa.nc_matmul(psum, stationary, moving)
            results.append(give(psum))
        return tuple(results)

    for result in result_of(kernel, a, b):
        np.testing.assert_array_equal(result, product(a, b))


def test_reusing_one_tensor_goes_on_accumulating(rng):
    a, b = small_integers(rng, 16, 4), small_integers(rng, 16, 6)

    def kernel(a, b):
        stationary, moving = load(a), load(b)
        psum = nl.ndarray((4, 6), nl.float32, nl.psum)
        nisa.nc_matmul(psum, stationary, moving)
        give(psum)
        nisa.nc_matmul(psum, stationary, moving, accumulate=True)
        return give(psum)

    np.testing.assert_array_equal(result_of(kernel, a, b), 2 * product(a, b))


def test_adding_to_a_bank_that_another_tensor_took_is_refused(rng):
    a, b = small_integers(rng, 16, 4), small_integers(rng, 16, 6)

    def kernel(a, b):
        stationary, moving = load(a), load(b)
        first = nl.ndarray((4, 6), nl.float32, nl.psum, address=(0, 0))
        nisa.nc_matmul(first, stationary, moving)
        second = nl.ndarray((4, 6), nl.float32, nl.psum, address=(0, 0))
        nisa.nc_matmul(second, stationary, moving)
        nisa.nc_matmul(first, stationary, moving)

    with pytest.raises(AliasError, match="placed over it"):
        run(kernel, a, b, machine="trn2")


def test_moving_and_dst_may_be_strided_3d_views(rng):
    """A stride-2 convolution row: every other column of two rows, into every other column."""
    a = small_integers(rng, 24, 5, dtype=BFLOAT16)
    image = small_integers(rng, 24, 4, 9, dtype=BFLOAT16)

    def kernel(a, image):
        stationary, window = load(a), load(image)
        psum = nl.ndarray((5, 2, 8), nl.float32, nl.psum)
        nisa.memset(psum, 0.0)
        nisa.nc_matmul(psum[:, :, 1:8:2], stationary, window[:, 1:4:2, 0:8:2])
        return give(psum)

    expected = np.zeros((5, 2, 8))
    picked = image[:, 1:4:2, 0:8:2].reshape(24, 8)
    expected[:, :, 1:8:2] = product(a, picked).reshape(5, 2, 4)
    np.testing.assert_array_equal(result_of(kernel, a, image), expected)


def test_a_packed_moving_pairs_with_a_strided_dst_in_row_major_order(rng):
    a, b = small_integers(rng, 8, 3), small_integers(rng, 8, 6)

    def kernel(a, b):
        psum = nl.ndarray((3, 2, 5), nl.float32, nl.psum)
        nisa.memset(psum, 0)
        nisa.nc_matmul(psum[:, :, 1:4], load(a), load(b))
        return give(psum)

    result = result_of(kernel, a, b)
    np.testing.assert_array_equal(result[:, :, 1:4], product(a, b).reshape(3, 2, 3))


def test_stationary_may_be_a_strided_view(rng):
    weights, b = small_integers(rng, 8, 3, 4), small_integers(rng, 8, 6)

    def kernel(weights, b):
        psum = nl.ndarray((3, 6), nl.float32, nl.psum)
        nisa.nc_matmul(psum, load(weights)[:, :, 1], load(b))
        return give(psum)

    np.testing.assert_array_equal(result_of(kernel, weights, b), product(weights[:, :, 1], b))


def two_bank_matmul(columns, start):
    def kernel(a, b):
        psum = nl.ndarray((4, 1024), nl.float32, nl.psum)
        nisa.nc_matmul(psum[:, start : start + columns], load(a), load(b)[:, :columns])
        return give(psum[:, start : start + columns])

    return kernel


@pytest.mark.parametrize("machine", ["trn1", "trn2"])
def test_a_dst_across_banks_is_refused_before_trn3(rng, machine):
    a, b = small_integers(rng, 16, 4), small_integers(rng, 16, 64)
    with refused("nc_matmul", r"one PSUM bank of 2048 bytes per partition"):
        run(two_bank_matmul(64, 480), a, b, machine=machine)
    for start in (480, 512, 900):
        result = result_of(two_bank_matmul(32, start), a, b, machine=machine)
        np.testing.assert_array_equal(result, product(a, b[:, :32]))


def test_a_dst_that_runs_backwards_across_banks_is_refused(rng):
    a, b = small_integers(rng, 16, 4), small_integers(rng, 16, 64)

    def kernel(a, b):
        psum = nl.ndarray((4, 1024), nl.float32, nl.psum)
        nisa.nc_matmul(psum.ap([[1024, 4], [-1, 64]], offset=520), load(a), load(b))

    with refused("nc_matmul", "one PSUM bank of 2048 bytes"):
        run(kernel, a, b, machine="trn2")


def test_a_dst_across_banks_is_fine_on_trn3(rng):
    a, b = small_integers(rng, 16, 4), small_integers(rng, 16, 700)
    result = result_of(two_bank_matmul(700, 300), a, b, machine="trn3")
    np.testing.assert_array_equal(result, product(a, b))


def test_a_bfloat16_dst_is_rounded_at_every_write_on_trn3(rng):
    a = rng.normal(size=(64, 8)).astype(BFLOAT16)
    b = rng.normal(size=(64, 24)).astype(BFLOAT16)

    def kernel(a, b):
        stationary, moving = load(a), load(b)
        psum = nl.ndarray((8, 24), nl.bfloat16, nl.psum)
        for start in (0, 32):
            rows = slice(start, start + 32)
            nisa.nc_matmul(psum, stationary[rows], moving[rows])
        return give(psum)

    parts = [a[i : i + 32].astype(np.float32).T @ b[i : i + 32].astype(np.float32) for i in (0, 32)]
    once = parts[0].astype(BFLOAT16)
    expected = (once.astype(np.float32) + parts[1]).astype(BFLOAT16)
    result = result_of(kernel, a, b, machine="trn3")
    np.testing.assert_array_equal(result, expected)
    with refused("nc_matmul", "float32 on trn2"):
        run(kernel, a, b, machine="trn2")


@pytest.mark.parametrize(
    "hints",
    [{}, {"is_stationary_onezero": True}, {"is_moving_onezero": True}],
    ids=["none", "stationary", "moving"],
)
def test_onezero_hints_change_the_cost_and_not_the_result(rng, hints):
    a, b = small_integers(rng, 16, 4), small_integers(rng, 16, 6)
    run_ = run(lambda a, b: multiply(a, b, **hints), a, b, machine="trn2")
    np.testing.assert_array_equal(run_.outputs, product(a, b))
    matmul = next(i for i in run_.trace.instructions() if i.op == "nc_matmul")
    assert bool(matmul.option("onezero")) == bool(hints)


def test_non_finite_values_go_through_without_a_warning():
    a = np.array([[np.inf], [0.0]], np.float32)
    b = np.array([[0.0, 1.0], [np.inf, -np.inf]], np.float32)
    assert np.isnan(result_of(multiply, a, b)).all()


@pytest.mark.parametrize("value", [0, 0.0])
def test_a_zeroed_tile_is_overwritten_where_a_matmul_writes(rng, value):
    a, b = small_integers(rng, 16, 4), small_integers(rng, 16, 6)

    def kernel(a, b):
        psum = nl.ndarray((4, 8), nl.float32, nl.psum)
        nisa.memset(psum, value)
        nisa.nc_matmul(psum[:, :6], load(a), load(b))
        nisa.nc_matmul(psum[:, :6], load(a), load(b))
        return give(psum)

    result = result_of(kernel, a, b)
    np.testing.assert_array_equal(result[:, :6], 2 * product(a, b))
    np.testing.assert_array_equal(result[:, 6:], 0)


def onto_ones(accumulate):
    def kernel(a, b):
        psum = nl.ndarray((4, 6), nl.float32, nl.psum)
        nisa.memset(psum, 1.0)
        nisa.nc_matmul(psum, load(a), load(b), accumulate=accumulate)
        return give(psum)

    return kernel


@pytest.mark.parametrize("machine", ["trn1", "trn2", "trn3"])
def test_an_inferred_flag_over_non_zero_leftovers_is_refused(rng, machine):
    a, b = small_integers(rng, 16, 4), small_integers(rng, 16, 6)
    with refused("nc_matmul", "overwritten or added to is not defined"):
        run(onto_ones(None), a, b, machine=machine)


@pytest.mark.parametrize("machine", ["trn1", "trn2", "trn3"])
def test_accumulate_false_overwrites_leftovers(rng, machine):
    a, b = small_integers(rng, 16, 4), small_integers(rng, 16, 6)
    result = result_of(onto_ones(False), a, b, machine=machine)
    np.testing.assert_array_equal(result, product(a, b))


def test_accumulate_true_adds_to_a_memset_on_trn3_only(rng):
    a, b = small_integers(rng, 16, 4), small_integers(rng, 16, 6)
    result = result_of(onto_ones(True), a, b, machine="trn3")
    np.testing.assert_array_equal(result, product(a, b) + 1)
    with refused("nc_matmul", "trn2 adds to matmul results only"):
        run(onto_ones(True), a, b, machine="trn2")


@pytest.mark.parametrize("machine", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("values", [True, False])
def test_accumulate_true_on_unwritten_elements_is_refused(rng, machine, values):
    a, b = small_integers(rng, 16, 4), small_integers(rng, 16, 6)

    def kernel(a, b):
        stationary, moving = load(a), load(b)
        psum = nl.ndarray((4, 6), nl.float32, nl.psum)
        nisa.nc_matmul(psum[:, :5], stationary, moving[:, :5], accumulate=False)
        nisa.nc_matmul(psum, stationary, moving, accumulate=True)

    with refused("nc_matmul", f"{machine} adds to"):
        run(kernel, a, b, machine=machine, values=values)


def test_accumulate_takes_no_other_value(rng):
    a, b = small_integers(rng, 16, 4), small_integers(rng, 16, 6)
    with refused("nc_matmul", "True, False or None"):
        result_of(lambda a, b: multiply(a, b, accumulate=1), a, b)


def test_numpy_booleans_are_flags(rng):
    a, b = small_integers(rng, 16, 4), small_integers(rng, 16, 6)
    result = result_of(lambda a, b: multiply(a, b, accumulate=np.bool_(False)), a, b)
    np.testing.assert_array_equal(result, product(a, b))


def test_a_view_of_another_type_keeps_its_own_history(rng):
    """Half a bank is used as bfloat16 while the other half holds fp32 sums (trn3)."""
    a, b = small_integers(rng, 16, 4), small_integers(rng, 16, 8)

    def kernel(a, b):
        stationary, moving = load(a), load(b)
        psum = nl.ndarray((4, 16), nl.float32, nl.psum)
        narrow = psum[:, 8:12].view(nl.bfloat16)
        for _ in range(2):
            nisa.nc_matmul(psum[:, :8], stationary, moving)
            nisa.nc_matmul(narrow, stationary, moving)
        return give(psum[:, :8]), give(narrow)

    wide, narrow = result_of(kernel, a, b, machine="trn3")
    np.testing.assert_array_equal(wide, 2 * product(a, b))
    np.testing.assert_array_equal(narrow.astype(np.float64), 2 * product(a, b))


def test_double_row_contracts_two_rows_a_partition(rng):
    a = small_integers(rng, 128, 2, 128, dtype=E4M3)
    b = small_integers(rng, 128, 2, 512, dtype=E5M2)

    def kernel(a, b):
        psum = nl.ndarray((128, 512), nl.float32, nl.psum)
        mode = nisa.matmul_perf_mode.double_row
        nisa.nc_matmul(psum, load(a), load(b), perf_mode=mode)
        return give(psum)

    expected = np.einsum("pjm,pjn->mn", a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_array_equal(result_of(kernel, a, b), expected)
    assert_traces_agree(kernel, a, b)
    with refused("nc_matmul", "exists from NeuronCore-v3 on"):
        run(kernel, a, b, machine="trn1")


def test_double_row_goes_with_row_tiles(rng):
    a = small_integers(rng, 64, 2, 128, dtype=E4M3)
    b = small_integers(rng, 64, 2, 16, dtype=E4M3)

    def kernel(a, b):
        psum = nl.ndarray((128, 16), nl.float32, nl.psum)
        nisa.nc_matmul(
            psum,
            load(a, address=(64, 0)),
            load(b, address=(64, 1024)),
            tile_size=(64, 128),
            tile_position=(64, 0),
            perf_mode=nisa.matmul_perf_mode.double_row,
        )
        return give(psum)

    expected = np.einsum("pjm,pjn->mn", a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_array_equal(result_of(kernel, a, b), expected)


def double_row(shape_a, shape_b, dtype=E4M3, **options):
    def kernel(a, b):
        psum = nl.ndarray((shape_a[-1], shape_b[-1]), nl.float32, nl.psum)
        mode = nisa.matmul_perf_mode.double_row
        nisa.nc_matmul(psum, load(a), load(b), perf_mode=mode, **options)

    return kernel, np.ones(shape_a, dtype), np.ones(shape_b, dtype)


@pytest.mark.parametrize(
    ("case", "limit"),
    [
        (double_row((16, 2, 4), (16, 2, 8), dtype=BFLOAT16), "fp8 operands whose first free"),
        (double_row((16, 3, 4), (16, 2, 8)), "first free dimension is 2"),
        (double_row((16, 2, 4), (16, 16)), "first free dimension is 2"),
        (
            double_row((16, 2, 4), (16, 2, 8), tile_size=(128, 32), tile_position=(0, 0)),
            "one of the two",
        ),
        (double_row((4, 2, 4), (4, 2, 4), is_transpose=True), "one of the two"),
    ],
)
def test_double_row_is_refused_for(case, limit):
    with refused("nc_matmul", limit):
        run(*case, machine="trn2")
