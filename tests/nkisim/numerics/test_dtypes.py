"""dtypes: names, casts to integers, bits, packing and the way from and to the host."""

import ml_dtypes
import numpy as np
import pytest

from nkisim.errors import NkiValidationError
from nkisim.numerics import dtypes

every_packed = pytest.mark.parametrize(
    "packed", ["float8_e5m2_x4", "float8_e4m3fn_x4", "float4_e2m1fn_x4"]
)


def same_floats(left, right):
    """Equal bit for bit, except that any NaN equals any NaN."""
    left, right = np.float32(left), np.float32(right)
    equal = left.view(np.uint32) == right.view(np.uint32)
    return bool(np.all(equal | (np.isnan(left) & np.isnan(right))))


def test_float32_is_returned_as_it_is():
    values = np.array([1.1, np.nan], np.float32)
    assert dtypes.round_floats(values, "float32") is values
    assert dtypes.from_float32(values, "float32") is values
    assert dtypes.to_float32(values, "float32") is values


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "tfloat32", "float8_e4m3"])
def test_without_precision_floats_are_stored_unrounded(dtype):
    values = np.array([1.0001, 1e30], np.float32)
    assert dtypes.round_floats(values, dtype, precise=False) is values
    assert dtypes.from_float32(values, dtype, precise=False) is values
    assert not np.array_equal(dtypes.round_floats(values, dtype), values)


def test_without_precision_integers_still_round():
    assert dtypes.from_float32(np.float32([2.5]), "int8", precise=False).tolist() == [2]


INTEGERS = ["int8", "int16", "int32", "uint8", "uint16", "uint32"]


def test_integers_round_to_even_and_saturate():
    values = np.array([2.5, 3.5, -300.0, -0.5, 127.5, np.inf, np.nan], np.float32)
    assert dtypes.from_float32(values, "int8").tolist() == [2, 4, -128, 0, 127, 127, 0]
    assert dtypes.from_float32(values, "uint8").tolist() == [2, 4, 0, 0, 128, 255, 0]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_conversion_is_round_half_even_then_clamp(dtype):
    limits = np.iinfo(dtype)
    edges = [limits.min, limits.max, 0, 2**24, 2**31, 2**32]
    near = [edge + step for edge in edges for step in (-1.5, -1, -0.5, 0, 0.5, 1, 1.5)]
    values = np.array([*near, 1e30, -1e30, np.inf, -np.inf], np.float32)
    clamped = [min(max(float(value), -1e40), 1e40) for value in values]
    expected = [min(max(round(value), limits.min), limits.max) for value in clamped]
    held = dtypes.from_float32(values, dtype)
    assert held.dtype == np.dtype(dtype)
    assert held.tolist() == expected


def test_bool_is_difference_from_zero():
    values = np.array([0.0, -0.0, 0.25, -3.0, np.nan], np.float32)
    held = dtypes.from_float32(values, "bool")
    assert held.dtype == np.uint8
    assert held.tolist() == [0, 0, 1, 1, 1]
    assert dtypes.from_bits(np.array([0, 1, 4], np.uint8), "bool").tolist() == [0, 1, 1]


def test_integers_become_the_nearest_float32():
    held = np.array([2**24 + 1, 2**24 + 3, -7], np.int32)
    assert dtypes.to_float32(held, "int32").tolist() == [2**24, 2**24 + 4, -7]
    assert dtypes.to_float32(np.array([0, 1], np.uint8), "bool").tolist() == [0.0, 1.0]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_bits_are_twos_complement(dtype):
    limits = np.iinfo(dtype)
    held = np.array([limits.min, limits.max, 0], dtype)
    bits = dtypes.bits_of(held, dtype)
    assert bits.dtype == np.dtype(f"uint{limits.bits}")
    assert bits.tolist() == [value % 2**limits.bits for value in held.tolist()]
    assert np.array_equal(dtypes.from_bits(bits, dtype), held)


@pytest.mark.parametrize("packed", ["float8_e5m2_x4", "float8_e4m3fn_x4"])
def test_fp8_packs_four_bytes_lowest_first(packed):
    element = np.dtype(packed.removesuffix("_x4"))
    codes = np.arange(256, dtype=np.uint8).reshape(8, 8, 4)
    values = codes.view(element).astype(np.float32)
    expected = sum(codes[..., i].astype(np.uint32) << (8 * i) for i in range(4))
    number = ~np.isnan(values).any(axis=-1)
    bits = dtypes.pack_x4(values, packed)
    assert bits.dtype == np.uint32
    assert np.array_equal(bits[number], expected[number])
    assert same_floats(dtypes.unpack_x4(expected, packed), values)


def test_fp4_packs_four_nibbles_lowest_first():
    values = np.array([[0, 0.5, 1, 1.5], [2, 3, 4, 6], [-0.0, -0.5, -1, -1.5], [-2, -3, -4, -6]])
    bits = dtypes.pack_x4(values.astype(np.float32), "float4_e2m1fn_x4")
    assert bits.dtype == np.uint16
    assert [hex(word) for word in bits] == ["0x3210", "0x7654", "0xba98", "0xfedc"]
    assert same_floats(dtypes.unpack_x4(bits, "float4_e2m1fn_x4"), values)


def test_packing_rounds_to_even_and_fp4_saturates():
    values = np.array([0.25, 0.75, 5.0, 100.0], np.float32)
    bits = dtypes.pack_x4(values, "float4_e2m1fn_x4")
    assert dtypes.unpack_x4(bits, "float4_e2m1fn_x4").tolist() == [0.0, 1.0, 4.0, 6.0]
    tie = np.array([1 + 2**-4, 1 + 3 * 2**-4, 448, 2**-10], np.float32)
    rounded = dtypes.unpack_x4(dtypes.pack_x4(tie, "float8_e4m3fn_x4"), "float8_e4m3fn_x4")
    assert rounded.tolist() == [1.0, 1.25, 448.0, 0.0]


@every_packed
def test_packing_works_on_strided_views(packed):
    values = np.arange(4 * 6, dtype=np.float32).reshape(4, 6).T % 7
    bits = dtypes.pack_x4(values, packed)
    assert np.array_equal(bits, dtypes.pack_x4(values.copy(), packed))
    assert np.array_equal(
        dtypes.unpack_x4(bits[::2], packed), dtypes.unpack_x4(bits[::2].copy(), packed)
    )


@every_packed
def test_packed_types_are_refused_where_values_are_cast(packed):
    bits = np.zeros(3, dtypes.held_dtype(packed))
    with pytest.raises(dtypes.DTypeError, match=f"cast to {packed}"):
        dtypes.from_float32(np.zeros(3, np.float32), packed)
    with pytest.raises(dtypes.DTypeError, match=f"cast of {packed}"):
        dtypes.to_float32(bits, packed)
    with pytest.raises(dtypes.DTypeError, match="not an unpacked float type"):
        dtypes.round_floats(np.zeros(3, np.float32), packed)


def test_packing_refuses_other_shapes_and_types():
    with pytest.raises(dtypes.DTypeError, match=r"\(2, 3\).*\n.*length 4"):
        dtypes.pack_x4(np.zeros((2, 3), np.float32), "float8_e5m2_x4")
    with pytest.raises(dtypes.DTypeError, match="unpack_x4 of float32"):
        dtypes.unpack_x4(np.zeros(4, np.uint32), "float32")


def test_bits_of_the_wrong_width_are_refused():
    with pytest.raises(dtypes.DTypeError, match="uint8 bit patterns as bfloat16"):
        dtypes.from_bits(np.zeros(4, np.uint8), "bfloat16")


HOST_TYPES = [
    np.bool_, np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32, np.float16, np.float32,
    ml_dtypes.bfloat16, ml_dtypes.float8_e4m3, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e8m0fnu,
]  # fmt: skip


@pytest.mark.parametrize("native", HOST_TYPES, ids=lambda native: np.dtype(native).name)
def test_host_arrays_come_and_go_bit_for_bit(native):
    rng = np.random.default_rng(2)
    high = 2 if native is np.bool_ else 256
    raw = rng.integers(0, high, (6, 8 * np.dtype(native).itemsize), dtype=np.uint8)
    array = raw.view(native)
    dtype, held = dtypes.from_host(array)
    back = dtypes.to_host(held, dtype)
    assert dtype == np.dtype(native).name
    assert held.dtype == dtypes.held_dtype(dtype)
    assert held.shape == array.shape
    assert back.dtype == array.dtype
    assert np.array_equal(back.view(np.uint8), raw)


def test_host_values_arrive_unchanged():
    array = np.array([1.5, -2.0, 240.0]).astype(ml_dtypes.float8_e4m3)
    assert dtypes.from_host(array)[1].tolist() == [1.5, -2.0, 240.0]
    assert dtypes.from_host(np.array([True, False]))[1].tolist() == [1, 0]


def test_host_arrays_may_be_strided_or_big_endian():
    array = np.arange(12, dtype=">f4").reshape(3, 4)[:, ::2].T
    dtype, held = dtypes.from_host(array)
    assert dtype == "float32"
    assert held.tolist() == array.tolist()


def test_types_without_a_host_type():
    assert dtypes.to_host(np.float32([1.5]), "tfloat32").dtype == np.float32
    assert dtypes.to_host(np.uint32([7]), "float8_e5m2_x4").dtype == np.uint32
    assert dtypes.to_host(np.uint16([7]), "float4_e2m1fn_x4").dtype == np.uint16


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("bool", "bool"), ("bool_", "bool"), (bool, "bool"), (np.bool_, "bool"),
        ("float8e4", "float8_e4m3"), ("float8e5", "float8_e5m2"), ("tfloat32", "tfloat32"),
        (np.float32, "float32"), (np.dtype(">f4"), "float32"), (np.uint16, "uint16"),
        (np.int64, "int64"), (np.dtype("bfloat16"), "bfloat16"), (ml_dtypes.bfloat16, "bfloat16"),
        (ml_dtypes.float8_e4m3fn, "float8_e4m3fn"), ("float4_e2m1fn_x4", "float4_e2m1fn_x4"),
    ],
)  # fmt: skip
def test_canonical_names(given, name):
    assert dtypes.canonical(given) == name


@pytest.mark.parametrize("name", dtypes.ALL)
def test_a_canonical_name_is_its_own(name):
    assert dtypes.canonical(name) == name
    kinds = [dtypes.is_float(name), dtypes.is_integer(name), dtypes.is_packed(name)]
    assert kinds.count(True) == 1


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        (np.float64, r"astype\(np.float32\)"), ("float64", r"astype\(np.float32\)"),
        (np.uint64, r"astype\(np.uint32\)"), (ml_dtypes.float4_e2m1fn, "float4_e2m1fn_x4"),
        (np.complex64, "use one of them"), ("float24", "use one of them"),
        (object(), "use one of them"), ("f4", "use one of them"),
    ],
)  # fmt: skip
def test_unknown_dtypes_are_refused_with_a_remedy(given, remedy):
    with pytest.raises(dtypes.DTypeError, match=remedy):
        dtypes.canonical(given)


def test_an_unknown_dtype_is_a_validation_error_everywhere():
    for function in (dtypes.itemsize_bytes, dtypes.is_float, dtypes.held_dtype, dtypes.poison):
        with pytest.raises(NkiValidationError, match="float24"):
            function("float24")
    with pytest.raises(dtypes.DTypeError, match="float64"):
        dtypes.from_host(np.zeros(2))


def test_sizes_in_bytes():
    sizes = {name: dtypes.itemsize_bytes(name) for name in dtypes.ALL}
    four = {"int32", "uint32", "float32", "tfloat32", "float8_e5m2_x4", "float8_e4m3fn_x4"}
    two = {"int16", "uint16", "float16", "bfloat16", "float4_e2m1fn_x4"}
    assert {name for name, size in sizes.items() if size == 4} == four
    assert {name for name, size in sizes.items() if size == 2} == two
    assert sizes["float8_e8m0fnu"] == sizes["bool"] == sizes["int8"] == 1


def test_poison_is_visible_in_every_type():
    for name in dtypes.ALL:
        poisoned = np.full(2, dtypes.poison(name), dtypes.held_dtype(name))
        if dtypes.is_float(name):
            assert np.isnan(poisoned).all()
            assert same_floats(dtypes.round_floats(poisoned, name), poisoned)
        elif dtypes.is_integer(name):
            assert poisoned.tolist() == ([1, 1] if name == "bool" else [4, 4])
        elif name == "float4_e2m1fn_x4":
            assert (dtypes.unpack_x4(poisoned, name) == 6).all()
        else:
            assert np.isnan(dtypes.unpack_x4(poisoned, name)).all()


def test_numpy_knows_the_names():
    assert np.zeros(2, dtype="bfloat16").dtype.itemsize == 2
    assert np.zeros(2, dtype="float8_e4m3fn").dtype.itemsize == 1
