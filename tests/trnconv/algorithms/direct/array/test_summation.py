"""reproducible=True: every output has the same bits, however its convolution is cut.

Sums are compared in float32 (the output type of most calls here), where a different order of
summation shows; a narrower output would hide it.
"""

import zlib
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import pytest

from conv_arrays import numpy_dtype
from direct_plans import direct_plans
from repetition import few
from tolerance import forward_bound
from trnconv.errors import PlanError, UnsupportedError
from trnconv.geometry import conv_shape, transposed_shape
from trnconv.planner.explain import explain
from trnconv.problem.epilogue import epilogue_of
from trnconv.problem.launches import LaunchPart, halve_channels
from trnconv.problem.limits import DEFAULT_BUDGET
from trnconv.reference import forward
from trnconv.runtime import LaunchOptions, convolve_shape, convolve_transposed, plan_for, simulator

DEPTH, HEIGHT, WIDTH = 0, 1, 2
CUBE, FRAMES, IMAGE = (3, 3, 3), (3, 1, 1), (1, 3, 3)
WIDE = epilogue_of("identity", "none", "float32")


@dataclass(frozen=True)
class Layer:
    """A causal convolution of a video: all padding of the frames is before the first."""

    c_in: int
    c_out: int
    kernel: tuple = CUBE
    stride: tuple = (1, 1, 1)
    groups: int = 1
    modes: tuple = ("zeros", "zeros", "zeros")
    dtype: str = "bfloat16"
    size: tuple = (9, 6, 7)
    dilation: tuple = (1, 1, 1)
    batch: int = 1
    cores: int = 1

    @property
    def padding(self):
        reach = [d * (k - 1) for d, k in zip(self.dilation, self.kernel, strict=True)]
        strided = [s > 1 for s in self.stride]
        around = [
            (0, r) if cut else (r // 2, r // 2) for r, cut in zip(reach, strided, strict=True)
        ]
        return ((reach[DEPTH], 0), around[HEIGHT], around[WIDTH])

    def shape(self):
        return conv_shape(
            (self.batch, self.c_in, *self.size),
            (self.c_out, self.c_in // self.groups, *self.kernel),
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
            padding_mode=self.modes,
        )

    def arrays(self, draw=None):
        """x, w and bias, the same ones for the same layer."""
        rng = np.random.default_rng(zlib.crc32(repr(self).encode()))
        draw = draw or (lambda sizes: rng.standard_normal(sizes, np.float32))
        x = draw((self.batch, self.c_in, *self.size)).astype(numpy_dtype(self.dtype))
        w = draw((self.c_out, self.c_in // self.groups, *self.kernel)).astype(x.dtype)
        return x, w, draw((self.c_out,)).astype(np.float32)


LAYERS = {
    "3": Layer(3, 96),
    "12": Layer(12, 96),
    "16": Layer(16, 129),
    "32": Layer(32, 32),
    "40": Layer(40, 129),
    "96": Layer(96, 96),
    "96_to_3": Layer(96, 3),
    "128": Layer(128, 128),
    "130": Layer(130, 40),
    "192": Layer(192, 192),
    "384": Layer(384, 24),
    "16_to_3": Layer(16, 3),
    "temporal": Layer(130, 129, FRAMES),
    "temporal_narrow": Layer(40, 3, FRAMES),
    "spatial": Layer(40, 96, IMAGE),
    "spatial_narrow": Layer(96, 3, IMAGE),
    "halved_images": Layer(40, 96, IMAGE, stride=(1, 2, 2)),
    "halved_video": Layer(12, 3, CUBE, stride=(1, 2, 2)),
    "halved_frames": Layer(96, 96, FRAMES, stride=(2, 1, 1)),
    "halved_frames_narrow": Layer(40, 3, CUBE, stride=(2, 1, 1)),
    "groups": Layer(80, 160, CUBE, groups=2),
    "small_groups": Layer(32, 32, CUBE, groups=8),
    "depthwise": Layer(40, 40, CUBE, groups=40),
    "dilated": Layer(40, 24, CUBE, dilation=(2, 1, 2)),
    "replicate": Layer(40, 96, modes=("replicate", "replicate", "replicate")),
    "replicated_frames": Layer(96, 3, modes=("replicate", "zeros", "zeros")),
    "reflect": Layer(12, 24, modes=("zeros", "reflect", "reflect")),
    "two_cores": Layer(96, 96, cores=2),
    "two_cores_narrow": Layer(40, 129, cores=2),
    "float32": Layer(40, 96, dtype="float32"),
    "float32_narrow": Layer(40, 3, dtype="float32"),
    "float16": Layer(40, 129, dtype="float16"),
}


def launch(layer, *, reproducible=True, **options):
    return LaunchOptions(
        cores=layer.cores, reproducible=reproducible, **({"epilogue": WIDE} | options)
    )


def whole(layer, arrays, **options):
    """All of it in one call."""
    x, w, bias = arrays
    return convolve_shape((x,), w, bias, layer.shape(), launch(layer, **options)).y


def cut(layer, arrays, axis, counts, **options):
    """So many outputs in each call: the input they read, with a cache of frames as its own piece.

    Chunks of frames read the last frames of the chunk before, chunks of rows a halo.
    """
    parts = []
    for end, count in zip(accumulate(counts), counts, strict=True):
        parts.append(part(layer, arrays, axis, (end - count, end), **options))
    return np.concatenate(parts, axis=2 + axis)


def part(layer, arrays, axis, outputs, **options):
    x, w, bias = arrays
    first, end = outputs
    size, stride, reach = layer.size[axis], layer.stride[axis], _reach(layer, axis)
    begin = first * stride - layer.padding[axis][0]
    stop = (end - 1) * stride - layer.padding[axis][0] + reach
    kept = range(max(begin, 0), min(stop, size))
    pads = list(layer.padding)
    pads[axis] = (kept[0] - begin, stop - kept[-1] - 1)
    taken = x.take(kept, 2 + axis)
    shape = conv_shape(
        taken.shape,
        w.shape,
        stride=layer.stride,
        padding=pads,
        dilation=layer.dilation,
        groups=layer.groups,
        padding_mode=layer.modes,
    )
    pieces = (taken,)
    if axis == DEPTH and first:
        cached = (first - 1) * stride + reach - layer.padding[axis][0] - kept[0]
        pieces = tuple(np.ascontiguousarray(it) for it in np.split(taken, [max(cached, 0)], 2))
    return convolve_shape(pieces, w, bias, shape, launch(layer, **options)).y


def _reach(layer, axis):
    return layer.dilation[axis] * (layer.kernel[axis] - 1) + 1


def chunkings(layer):
    """Chunks of one or two frames and then the rest, as decoders and encoders have them."""
    frames = layer.shape().out_size(DEPTH)
    half = (frames - 1) // 2
    return [(1, half, frames - 1 - half), (1, frames - 1), (2, frames - 2)]


@few(2)
@pytest.mark.parametrize("name", LAYERS)
def test_frames_in_chunks_have_the_same_bits(name):
    layer = LAYERS[name]
    arrays = layer.arrays()
    y = whole(layer, arrays)
    for counts in chunkings(layer):
        np.testing.assert_array_equal(cut(layer, arrays, DEPTH, counts), y, str(counts))


@few(2)
@pytest.mark.parametrize("name", LAYERS)
def test_rows_in_halves_have_the_same_bits(name):
    layer = replace(LAYERS[name], size=(3, 14, 9))
    arrays = layer.arrays()
    rows = layer.shape().out_size(HEIGHT)
    y = whole(layer, arrays)
    np.testing.assert_array_equal(cut(layer, arrays, HEIGHT, (rows // 2, rows - rows // 2)), y)
    np.testing.assert_array_equal(cut(layer, arrays, HEIGHT, (1, rows - 1)), y)


@few(1)
@pytest.mark.parametrize("name", ["16", "96", "96_to_3", "192", "small_groups", "temporal_narrow"])
def test_columns_in_halves_have_the_same_bits(name):
    layer = replace(LAYERS[name], size=(3, 5, 24))
    arrays = layer.arrays()
    np.testing.assert_array_equal(cut(layer, arrays, WIDTH, (12, 12)), whole(layer, arrays))


@few(1)
@pytest.mark.parametrize("name", ["12", "40", "96", "192", "96_to_3", "halved_frames"])
def test_a_cache_of_zeros_gives_the_bits_of_padding(name):
    layer = LAYERS[name]
    x, w, bias = layer.arrays()
    before = layer.padding[DEPTH][0]
    pieces = (np.zeros_like(x[:, :, :before]), x)
    bare = replace(
        layer.shape(),
        size=(before + layer.size[DEPTH], *layer.size[HEIGHT:]),
        pad_before=(0, *layer.shape().pad_before[HEIGHT:]),
    )
    y = convolve_shape(pieces, w, bias, bare, launch(layer)).y
    np.testing.assert_array_equal(y, whole(layer, (x, w, bias)))


@few(1)
@pytest.mark.parametrize("name", ["3", "96", "96_to_3", "spatial", "temporal", "small_groups"])
def test_images_of_a_batch_have_the_bits_they_have_alone(name):
    layer = replace(LAYERS[name], batch=3)
    x, w, bias = layer.arrays()
    y = whole(layer, (x, w, bias))
    for image in range(3):
        alone = whole(replace(layer, batch=1), (x[image : image + 1], w, bias))
        np.testing.assert_array_equal(y[image : image + 1], alone)


@few(1)
@pytest.mark.parametrize("name", ["40", "96", "192", "small_groups", "384"])
def test_two_cores_give_the_bits_of_one(name):
    arrays = LAYERS[name].arrays()
    pair = replace(LAYERS[name], cores=2)
    np.testing.assert_array_equal(whole(pair, arrays), whole(LAYERS[name], arrays))


@few(1)
@pytest.mark.parametrize("name", ["40", "96_to_3", "replicated_frames"])
def test_exact_plans_give_the_same_bits(name):
    arrays = LAYERS[name].arrays()
    exact = whole(LAYERS[name], arrays, exact=True)
    np.testing.assert_array_equal(exact, whole(LAYERS[name], arrays))


@few(3)
@pytest.mark.parametrize("activation", ["relu", "silu", "gelu", "leaky_relu:0.1", "elu"])
def test_ends_do_not_depend_on_the_chunk(activation):
    """Two engines take turns to end sums, and elements stand at other places of their tiles."""
    layer = LAYERS["40"]
    arrays = layer.arrays()
    epilogue = epilogue_of(activation, "none", "float32")
    y = whole(layer, arrays, epilogue=epilogue)
    np.testing.assert_array_equal(cut(layer, arrays, DEPTH, (1, 4, 4), epilogue=epilogue), y)


@few(6)
@pytest.mark.parametrize("name", LAYERS)
def test_the_sums_are_right(name):
    """Small integers: any order gives the exact sum, and a wrong product shows."""
    layer = LAYERS[name]
    rng = np.random.default_rng(1)
    x, w, bias = layer.arrays(lambda sizes: rng.integers(-3, 4, sizes).astype(np.float32))
    dense = np.zeros((layer.c_out, layer.c_in, *layer.kernel), np.float32)
    per_group, outs = layer.c_in // layer.groups, layer.c_out // layer.groups
    for group in range(layer.groups):
        own = slice(group * outs, (group + 1) * outs)
        dense[own, group * per_group : (group + 1) * per_group] = w[own]
    exact = forward(x, dense, bias, replace(layer.shape(), groups=1))
    np.testing.assert_array_equal(whole(layer, (x, w, bias)), exact)


@few(1)
@pytest.mark.parametrize("name", ["96", "96_to_3", "192", "two_cores"])
def test_many_blocks_in_a_hardware_loop_have_the_same_bits(name):
    layer = LAYERS[name]
    x, w, bias = layer.arrays()
    plans = plan_for(layer.shape(), layer.dtype, launch(layer))
    looped = tuple(
        replace(plan, looped=True, rows=plan.row_multiple, lead=(), ahead=False) for plan in plans
    )
    y = convolve_shape((x,), w, bias, layer.shape(), launch(layer, plans=looped)).y
    np.testing.assert_array_equal(y, whole(layer, (x, w, bias)))


def test_a_doubled_image_in_chunks_of_frames():
    layer = Layer(40, 24)
    x, w, bias = layer.arrays()

    def run(frames, before):
        taken = np.ascontiguousarray(x[:, :, frames])
        bare = conv_shape(taken.shape, w.shape, padding=((before, 0), 1, 1))
        shape = replace(bare, upsample=(1, 2, 2))
        return convolve_shape((taken,), w, bias, shape, launch(layer)).y

    chunks = [run(slice(0, 1), 2), run(slice(0, 5), 1), run(slice(3, 9), 0)]
    np.testing.assert_array_equal(np.concatenate(chunks, axis=2), run(slice(0, 9), 2))


def test_a_doubled_video_in_chunks_of_frames():
    """All frames are repeated but the first: chunks begin in different phases."""
    layer = Layer(40, 24, size=(5, 6, 7))
    x, w, bias = layer.arrays()

    def run(frames, before, skip):
        taken = np.ascontiguousarray(x[:, :, frames])
        modes = ("replicate", "zeros", "zeros")
        bare = conv_shape(x.shape, w.shape, padding=((before, 0), 1, 1), padding_mode=modes)
        size, times = taken.shape[2:], (2, 2, 2)
        shape = replace(bare, size=size, upsample=times, skip=(skip, 0, 0))
        return convolve_shape((taken,), w, bias, shape, launch(layer)).y

    y = run(slice(0, 5), 2, 1)
    np.testing.assert_array_equal(run(slice(0, 1), 2, 1), y[:, :, :1])
    np.testing.assert_array_equal(run(slice(0, 3), 2, 1), y[:, :, :5])
    np.testing.assert_array_equal(run(slice(2, 5), 0, 0), y[:, :, 5:])


def test_a_transposed_convolution_in_chunks_of_rows():
    """Output rows 2 q and 2 q + 1 read rows q - 1 .. q + 1: away from the cut they are the same."""
    layer = Layer(40, 24, kernel=(1, 4, 4), size=(2, 12, 9))
    x, w, bias = layer.arrays()
    w = np.ascontiguousarray(w.swapaxes(0, 1))

    def run(rows):
        taken = np.ascontiguousarray(x[:, :, :, rows])
        shape = transposed_shape(taken.shape, w.shape, stride=(1, 2, 2), padding=(0, 1, 1))
        return convolve_transposed(taken, w, bias, shape, launch(layer)).y

    y = run(slice(0, 12))
    np.testing.assert_array_equal(run(slice(0, 7))[:, :, :, :12], y[:, :, :, :12])
    np.testing.assert_array_equal(run(slice(5, 12))[:, :, :, 2:], y[:, :, :, 12:])


@few(1)
@pytest.mark.parametrize("name", ["16", "40", "96", "192"])
def test_the_default_mode_is_not_reproducible(name):
    """So these tests can fail: sums come in other orders, and BLAS looks at shapes."""
    layer, arrays = LAYERS[name], LAYERS[name].arrays()
    y = whole(layer, arrays, reproducible=False)
    chunks = cut(layer, arrays, DEPTH, (1, 4, 4), reproducible=False)
    assert (chunks != y).any()


def test_plans_of_another_order_are_refused():
    layer = LAYERS["40"]
    plans = plan_for(layer.shape(), layer.dtype)
    with pytest.raises(UnsupportedError, match="reproducible=True with plans that sum"):
        LaunchOptions(plans=plans, reproducible=True)


@few(1)
@pytest.mark.parametrize("name", ["16", "96", "192"])
def test_chunks_of_the_default_mode_are_close(name):
    """Each is within its bound of the exact sum; so most outputs are at most one step apart.

    Not all: where terms cancel, the steps of an output are finer than the errors of its sum.
    """
    layer = LAYERS[name]
    x, w, bias = layer.arrays()
    options = {"reproducible": False, "epilogue": epilogue_of("identity", "none", "")}
    y = whole(layer, (x, w, bias), **options)
    chunks = cut(layer, (x, w, bias), DEPTH, (1, 4, 4), **options)
    shape = layer.shape()
    bound = forward_bound(x, w, bias, shape, forward(x, w, bias, shape))
    assert np.all(np.abs(y.astype(np.float64) - chunks.astype(np.float64)) <= 2 * bound)


@few(1)
@pytest.mark.parametrize("channels", [129, 192, 300])
def test_halves_of_the_output_channels_have_the_same_bits(channels):
    layer = Layer(40, channels, size=(3, 6, 7))
    x, w, bias = layer.arrays()
    y = whole(layer, (x, w, bias))
    for half in halve_channels(LaunchPart(layer.shape(), 0, (0, 0, 0), (0, 0, 0))):
        filters, biases = half.channels_of(w), half.channels_of(bias)
        alone = convolve_shape((x,), filters, biases, half.shape, launch(layer)).y
        np.testing.assert_array_equal(alone, half.output_of(y))


def test_halves_of_less_than_a_tile_are_refused(monkeypatch):
    """They would be summed in the order of fewer channels."""

    layer = LAYERS["96"]
    x, w, bias = layer.arrays()
    right = simulator.plans_for

    def none_for_the_whole(problem, cores):
        if problem.shape == layer.shape():
            raise PlanError(f"{problem.shape}: too long")
        return right(problem, cores)

    monkeypatch.setattr(simulator, "plans_for", none_for_the_whole)
    with pytest.raises(UnsupportedError, match="one with 48 output channels"):
        convolve_shape((x,), w, bias, layer.shape(), launch(layer))


def test_a_plan_says_that_it_sums_alike():
    fixed, free = (
        direct_plans(LAYERS["96"].shape(), reproducible=fixed) for fixed in (True, False)
    )
    assert "order" in explain(fixed, DEFAULT_BUDGET)
    assert "order" not in explain(free, DEFAULT_BUDGET)
