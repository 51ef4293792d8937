"""The scatter baseline computes convolutions, and its stream is the one it stands for."""

from collections import Counter

import ml_dtypes
import numpy as np
import pytest

import nkisim
from benchmarks import scatter, scatter_tiles
from nkisim import TRN2, Spec
from nkisim.machine import Reading
from parser_lint import lint
from trnconv import reference
from trnconv.geometry import conv_shape

BFLOAT16 = ml_dtypes.bfloat16
SIGNIFICANT_BITS = {BFLOAT16: 8, np.float16: 11, np.float32: 24}


ONLY_HW = (0, 1, 1)
CASES = {
    "whole tiles of channels": conv_shape((1, 128, 4, 6, 9), (128, 128, 3, 3, 3), padding=ONLY_HW),
    "a causal front": conv_shape(
        (1, 96, 3, 5, 7), (96, 96, 3, 3, 3), padding=((2, 0), (1, 1), (1, 1))
    ),
    "two taps stacked on the rest": conv_shape(
        (1, 192, 3, 4, 6), (192, 192, 3, 3, 3), padding=ONLY_HW
    ),
    "four taps stacked, with gaps": conv_shape(
        (1, 16, 3, 5, 8), (140, 16, 3, 3, 3), padding=ONLY_HW
    ),
    "plain and stacked channels": conv_shape((1, 137, 2, 4, 5), (3, 137, 2, 3, 3), padding=1),
    "an image, stride 2": conv_shape((2, 3, 9, 11), (5, 3, 3, 3), stride=2, padding=1),
    "stride, dilation, uneven padding": conv_shape(
        (1, 5, 7, 10, 12),
        (4, 5, 3, 2, 3),
        stride=(2, 1, 3),
        dilation=(2, 3, 1),
        padding=((2, 2), (0, 3), (2, 0)),
    ),
    "rows longer than a bank": conv_shape((1, 40, 3, 1030), (6, 40, 3, 3), padding=1),
    "tiles that share a window": conv_shape((1, 130, 7, 300), (9, 130, 3, 3), padding=1),
    "one by one by one": conv_shape((1, 260, 2, 5, 7), (131, 260, 1, 1, 1)),
    "only in time, two images": conv_shape((2, 70, 5, 4, 3), (65, 70, 3, 1, 1)),
    "outputs that read padding only": conv_shape(
        (1, 33, 2, 3, 3), (4, 33, 2, 1, 2), padding=(3, 2, 3), dilation=(1, 1, 2)
    ),
    "more weights than SBUF holds": conv_shape(
        (1, 1152, 3, 3, 2), (330, 1152, 3, 3, 3), padding=ONLY_HW
    ),
    "fewer windows than tiles of channels": conv_shape(
        (1, 1920, 3, 2, 480), (100, 1920, 3, 3, 3), padding=ONLY_HW
    ),
    "windows that need small tiles": conv_shape(
        (1, 8, 9, 26, 600), (2, 8, 9, 9, 9), dilation=(1, 3, 1)
    ),
    "more taps than a batch": conv_shape((1, 70, 8, 9), (20, 70, 7, 7), padding=3),
}


def arrays(shape, dtype=BFLOAT16, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((shape.batch, shape.c_in, *shape.size)).astype(dtype)
    w = rng.standard_normal((shape.c_out, shape.c_in, *shape.kernel)).astype(dtype)
    return x, w, rng.standard_normal(shape.c_out).astype(np.float32)


def run(x, w, bias, shape):
    image = scatter.pack_weights(w, shape, x.dtype)
    return nkisim.run(scatter.scatter_forward, x, image, bias, shape).outputs


def error_and_bound(y, x, w, bias, shape):
    """|error| and what fp32 sums of exact products, rounded once, can differ by at most.

    Every one of C_in * taps products and the bias passes at most that many fp32 roundings; the
    store adds half a unit in the last place of what is stored.
    """
    terms = shape.c_in * shape.taps()
    size = reference.forward(np.abs(x), np.abs(w), np.abs(bias), shape)
    stored = y.astype(np.float64)
    _, exponent = np.frexp(stored)
    half_ulp = np.ldexp(0.5, exponent - SIGNIFICANT_BITS[y.dtype.type])
    error = np.abs(stored - reference.forward(x, w, bias, shape))
    return error, (terms + 2) * 2.0**-24 * size + half_ulp


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_it_is_a_convolution(name):
    shape = CASES[name]
    x, w, bias = arrays(shape)
    y = run(x, w, bias, shape)
    error, bound = error_and_bound(y, x, w, bias, shape)
    assert y.dtype == BFLOAT16
    assert (error <= bound).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_other_float_types(dtype):
    shape = CASES["two taps stacked on the rest"]
    x, w, bias = arrays(shape, dtype)
    y = run(x, w, bias, shape)
    error, bound = error_and_bound(y, x, w, bias, shape)
    assert y.dtype == dtype
    assert (error <= bound).all()


@pytest.mark.parametrize("tap", [(0, 0, 0), (1, 1, 1), (2, 2, 1)])
def test_a_dropped_tap_is_noticed(tap):
    shape = CASES["a causal front"]
    x, w, bias = arrays(shape)
    broken = w.copy()
    broken[:, :, tap[0], tap[1], tap[2]] = 0
    error, bound = error_and_bound(run(x, broken, bias, shape), x, w, bias, shape)
    assert (error > bound).any()


def test_values_that_are_not_numbers_stay_where_they_are_read():
    """Gaps between stacked taps meet zero weights: what is left in them must be zero too."""
    shape = CASES["four taps stacked, with gaps"]
    x, w, bias = arrays(shape)
    x[0, :, 0, 0, 0] = np.nan
    y = run(x, w, bias, shape)
    reads = np.zeros(x.shape)
    reads[0, :, 0, 0, 0] = 1
    touched = reference.forward(reads, np.ones_like(w), None, shape) > 0
    np.testing.assert_array_equal(np.isnan(y.astype(np.float32)), touched)


def cut_of(shape):
    return scatter_tiles.cut_of(shape, 2, TRN2.sbuf_usable_bytes_per_partition)


def test_the_cases_are_what_they_are_called():
    cuts = {name: cut_of(shape) for name, shape in CASES.items()}
    channels = {name: scatter_tiles.channel_tiles(shape) for name, shape in CASES.items()}
    assert [part.stack for part in channels["two taps stacked on the rest"]] == [1, 2]
    assert [part.stack for part in channels["four taps stacked, with gaps"]] == [4]
    assert [part.stack for part in channels["plain and stacked channels"]] == [1, 4]
    assert cuts["rows longer than a bank"].cols == TRN2.psum_bank_fp32_elems
    assert cuts["tiles that share a window"].tiles == 3
    few = "fewer windows than tiles of channels"
    assert cuts[few].windows < len(channels[few])
    assert cuts["more weights than SBUF holds"].filters == 2  # of three tiles of output channels
    assert cuts["more taps than a batch"].batch < 49
    assert cuts["windows that need small tiles"].cols < TRN2.psum_bank_fp32_elems


def whole_layer(c_in, c_out, kernel, size):
    """A layer of Wan's decoder on a part of a frame; nothing is padded in depth."""
    padding = tuple(0 if axis == 0 else taps // 2 for axis, taps in enumerate(kernel))
    return conv_shape((1, c_in, *size), (c_out, c_in, *kernel), padding=padding)


def shape_only(shape):
    return nkisim.run(
        scatter.scatter_forward,
        Spec((shape.batch, shape.c_in, *shape.size), "bfloat16"),
        Spec((scatter_tiles.step_count(shape), TRN2.partitions, shape.c_out), "bfloat16"),
        Spec((shape.c_out,), "float32"),
        shape,
        values=False,
    )


@pytest.mark.parametrize(
    ("shape", "tensor", "vector", "scalar", "dma"),
    [
        (whole_layer(384, 384, (3, 3, 3), (3, 90, 160)), 7290, 1890, 630, 264),
        (whole_layer(384, 768, (3, 1, 1), (3, 90, 160)), 1620, 360, 90, 285),
        (whole_layer(384, 384, (1, 1, 1), (4, 90, 160)), 1080, 600, 120, 726),
    ],
    ids=["3x3x3", "3x1x1", "1x1x1"],
)
def test_the_stream_counts_as_many_instructions_as_the_published_kernel(
    shape, tensor, vector, scalar, dma
):
    """Counted in the stream of nki-library's conv3d (SDK 2.32) for the same layers."""
    engines = Counter(one.engine.name for one in shape_only(shape).trace.instructions())
    counted = [engines[name] for name in ("tensor", "vector", "scalar", "dma")]
    assert counted == [tensor, vector, scalar, dma]


LONG = {
    "rows": whole_layer(96, 96, (3, 3, 3), (5, 24, 1280)),
    "frames": conv_shape((1, 128, 40, 4, 256), (128, 128, 3, 3, 3), padding=1),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LONG)
@pytest.mark.parametrize("reading", [Reading.default, Reading.optimistic], ids=str)
def test_a_long_problem_is_extended_from_two_crops(kind, reading, monkeypatch):
    """Linear but for the ends of frames and of the image: at most a block of rows at each end."""
    shape = LONG[kind]
    whole = scatter.time_scatter(shape, TRN2, reading)
    assert scatter.scatter_ns(shape, TRN2, reading) == whole  # short enough as it is
    monkeypatch.setattr(scatter, "LONGEST_RUN", 0)
    monkeypatch.setattr(scatter, "LONGEST_CROP", 4_000)
    crops = scatter.crops_of(shape, TRN2)
    assert (
        scatter.instruction_count(crops[1], TRN2) <= 4_000 < scatter.instruction_count(shape, TRN2)
    )
    in_rows = crops[0].out_size(1) < shape.out_size(1)
    assert in_rows == (kind == "rows")
    cut = cut_of(shape)
    blocks = shape.out_size(0) * -(-shape.out_size(1) // (cut.rows * cut.tiles))
    extended = scatter.scatter_ns(shape, TRN2, reading)
    assert abs(extended - whole) <= 2 * whole / blocks


def test_the_estimate_of_a_stream_is_close():
    """It leaves out weights, borders and skipped taps, and decides what is cropped."""
    for shape in (*LONG.values(), whole_layer(16, 384, (3, 3, 3), (3, 90, 160))):
        counted = shape_only(shape).trace.static_count
        assert scatter.instruction_count(shape, TRN2) == pytest.approx(counted, rel=0.1)


@pytest.mark.slow
def test_the_kernel_stays_inside_what_nki_compiles():
    """ConvShape checks itself on the host; its findings are not the baseline's."""
    found = lint(scatter.scatter_forward).findings
    assert [one for one in found if "benchmarks" in str(one)] == []
