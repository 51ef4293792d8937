"""The one table of named convolutions, for tests, goldens, benchmarks and the command line.

`BENCHMARK` are layers of video autoencoders, rows cropped where a whole image would only repeat
them. `EDGE` are small problems, each at a border of what a plan has to handle.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from trnconv.errors import TrnconvError
from trnconv.geometry import Axes, ConvShape, Padding, conv_shape

Dtype = Literal["bfloat16", "float16", "float32"]


@dataclass(frozen=True)
class Case:
    """A convolution with a name."""

    name: str
    shape: ConvShape
    note: str  # where it comes from, or what it provokes
    dtype: Dtype = "bfloat16"
    key: str = ""  # short form of the name, for benchmarks


def find(name_or_key: str) -> Case:
    """The case of this name or key."""
    known = {case.name: case for case in CASES} | {case.key: case for case in BENCHMARK}
    if name_or_key not in known:
        near = get_close_matches(name_or_key, known, n=3) or [case.name for case in BENCHMARK]
        raise TrnconvError(
            f"a case called {name_or_key!r}: there is none. Try {', '.join(near)}, or add it to"
            " trnconv/cases.py."
        )
    return known[name_or_key]


def _conv(
    x: str, w: str, *, stride: Axes = 1, padding: Padding = 0, dilation: Axes = 1
) -> ConvShape:
    """Sizes as the catalogue writes them, `1x96x6x48x1280`; the rest is torch's."""
    return conv_shape(_sizes(x), _sizes(w), stride=stride, padding=padding, dilation=dilation)


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split("x"))


_IN_PLANE = (0, 1, 1)  # frames come padded or cached, rows and columns do not
_CAUSAL = ((2, 0), 1, 1)

BENCHMARK = (
    Case(
        "wan_96_wide",
        _conv("1x96x6x48x1280", "96x96x3x3x3", padding=_IN_PLANE),
        "Wan 2.1 decoder, last level at 720p",
        key="a",
    ),
    Case(
        "wan_192_wide",
        _conv("1x192x6x60x640", "192x192x3x3x3", padding=_IN_PLANE),
        "Wan 2.1 decoder, third level at 720p",
        key="b",
    ),
    Case(
        "wan_384_720p_4_frames",
        _conv("1x384x6x90x160", "384x384x3x3x3", padding=_IN_PLANE),
        "Wan 2.1 decoder, first levels at 720p",
        key="c1",
    ),
    Case(
        "wan_384_720p_1_frame",
        _conv("1x384x3x90x160", "384x384x3x3x3", padding=_IN_PLANE),
        "Wan 2.1 decoder, first levels at 720p, streaming",
        key="c2",
    ),
    Case(
        "wan_384_480p_4_frames",
        _conv("1x384x6x60x104", "384x384x3x3x3", padding=_IN_PLANE),
        "Wan 2.1 decoder, first levels at 480p",
        key="c3",
    ),
    Case(
        "wan_384_480p_1_frame",
        _conv("1x384x3x60x104", "384x384x3x3x3", padding=_IN_PLANE),
        "Wan 2.1 decoder, first levels at 480p, streaming",
        key="c4",
    ),
    Case(
        "wan_to_rgb",
        _conv("1x96x6x48x1280", "3x96x3x3x3", padding=_IN_PLANE),
        "Wan 2.1 decoder, last layer: three output channels",
        key="d",
    ),
    Case(
        "wan_from_latent",
        _conv("1x16x3x90x160", "384x16x3x3x3", padding=_IN_PLANE),
        "Wan 2.1 decoder, first layer: sixteen input channels",
        key="e",
    ),
    Case(
        "wan_double_frames",
        _conv("1x384x3x90x160", "768x384x3x1x1"),
        "Wan 2.1 decoder, temporal upsampling",
        key="f",
    ),
    Case(
        "wan_after_upsampling",
        _conv("1x384x1x180x320", "192x384x1x3x3", padding=_IN_PLANE),
        "Wan 2.1 decoder, convolution behind a doubled image",
        key="g",
    ),
    Case(
        "cogvideox_128_wide",
        _conv("1x128x10x60x720", "128x128x3x3x3", padding=_IN_PLANE),
        "CogVideoX decoder, last level at 480x720",
        key="h1",
    ),
    Case(
        "cogvideox_256_wide",
        _conv("1x256x10x60x360", "256x256x3x3x3", padding=_IN_PLANE),
        "CogVideoX decoder, third level at 480x720",
        key="h2",
    ),
    Case(
        "cogvideox_512",
        _conv("1x512x5x60x90", "512x512x3x3x3", padding=_IN_PLANE),
        "CogVideoX decoder, first level at 480x720",
        key="h3",
    ),
    Case(
        "hunyuan_128_wide",
        _conv("1x128x6x60x640", "128x128x3x3x3", padding=_IN_PLANE),
        "HunyuanVideo decoder, last level",
        key="i1",
    ),
    Case(
        "hunyuan_256_wide",
        _conv("1x256x6x60x320", "256x256x3x3x3", padding=_IN_PLANE),
        "HunyuanVideo decoder, third level",
        key="i2",
    ),
    Case(
        "hunyuan_512",
        _conv("1x512x5x64x64", "512x512x3x3x3", padding=_IN_PLANE),
        "HunyuanVideo decoder, first level",
        key="i3",
    ),
    Case(
        "wan_pointwise_384",
        _conv("1x384x4x90x160", "384x384x1x1x1"),
        "Wan 2.1, a 1x1x1 shortcut: bound by memory",
        key="j",
    ),
    Case(
        "image_1024",
        _conv("1x1024x1x60x104", "1024x1024x1x3x3", padding=_IN_PLANE),
        "a size nki-library publishes a utilisation for, as an image",
        key="k1",
    ),
    Case(
        "video_1024",
        _conv("1x1024x3x60x104", "1024x1024x3x3x3", padding=_IN_PLANE),
        "the same as a video: more weights than SBUF holds",
        key="k2",
    ),
    Case(
        "four_small_images",
        _conv("4x32x1x32x32", "32x32x1x3x3", padding=_IN_PLANE),
        "a size nki-library publishes a latency for: launch counts as much as work",
        key="k3",
    ),
    Case(
        "pointwise_1024",
        _conv("1x1024x1x60x104", "1024x1024x1x1x1"),
        "image_1024 without its neighbours",
        key="k4",
    ),
    Case(
        "image_2048_to_1024",
        _conv("1x2048x1x30x52", "1024x2048x1x3x3", padding=_IN_PLANE),
        "a size nki-library publishes a utilisation for",
        key="k5",
    ),
    Case(
        "image_256_unpadded",
        _conv("1x256x224x224", "256x256x3x3"),
        "an image classifier's layer: a plain conv2d",
        key="l",
    ),
)

EDGE = (
    Case("pointwise", _conv("1x96x3x5x7", "192x96x1x1x1"), "a matrix product"),
    Case("patches_2x2", _conv("1x16x2x6x10", "64x16x1x2x2", stride=(1, 2, 2)), "stride is kernel"),
    Case(
        "patches_4x8x8",
        _conv("1x16x4x16x24", "48x16x4x8x8", stride=(4, 8, 8)),
        "stride is kernel, 256 taps for one output",
        dtype="float16",
    ),
    Case("time_only", _conv("1x64x5x4x6", "96x64x3x1x1"), "taps along depth alone"),
    Case(
        "time_halved",
        _conv("1x96x9x4x4", "96x96x3x1x1", stride=(2, 1, 1), padding=((2, 0), 0, 0)),
        "causal zeros and a temporal stride",
    ),
    Case("image_only", _conv("1x40x2x6x9", "56x40x1x3x3", padding=_IN_PLANE), "no temporal taps"),
    Case(
        "halved_one_sided",
        _conv("1x96x9x13", "96x96x3x3", stride=2, padding=((0, 1), (0, 1))),
        "an image halved with zeros at the bottom and on the right only",
    ),
    Case(
        "halved_in_all_axes",
        _conv("1x64x5x8x10", "64x64x3x3x3", stride=2, padding=1),
        "stride 2 everywhere, odd depth",
        dtype="float16",
    ),
    Case("one_frame_out", _conv("1x96x3x6x10", "96x96x3x3x3", padding=_IN_PLANE), "D_out is 1"),
    Case("causal", _conv("1x48x5x6x10", "48x48x3x3x3", padding=_CAUSAL), "two zero frames first"),
    Case("c_in_1", _conv("1x1x3x4x5", "1x1x3x3x3", padding=1), "one channel to one"),
    Case("c_in_3", _conv("1x3x4x6x10", "96x3x3x3x3", padding=_CAUSAL), "RGB"),
    Case("c_in_4", _conv("1x4x9x11", "96x4x3x3", padding=1), "RGBA image"),
    Case("c_in_12", _conv("1x12x4x6x10", "160x12x3x3x3", padding=_CAUSAL), "RGB, 2x2 patches"),
    Case("c_in_16", _conv("1x16x3x6x10", "384x16x3x3x3", padding=_IN_PLANE), "latent of Wan 2.1"),
    Case("c_in_33", _conv("1x33x3x5x9", "64x33x3x3x3", padding=1), "latent and a mask"),
    Case("c_in_48", _conv("1x48x3x5x9", "160x48x3x3x3", padding=_CAUSAL), "latent of Wan 2.2"),
    Case("c_in_65", _conv("1x65x3x5x9", "64x65x3x3x3", padding=1), "two latents and a mask"),
    Case("c_in_129", _conv("1x129x3x4x7", "32x129x3x3x3", padding=1), "one channel too many"),
    Case("c_in_192", _conv("1x192x4x4x6", "64x192x3x3x3", padding=_CAUSAL), "a tile and a half"),
    Case("c_out_3", _conv("1x96x4x8x12", "3x96x3x3x3", padding=_CAUSAL), "RGB comes out"),
    Case(
        "c_out_12", _conv("1x160x3x5x9", "12x160x3x3x3", padding=_IN_PLANE), "2x2 patches come out"
    ),
    Case(
        "c_out_48", _conv("1x128x3x5x9", "48x128x3x3x3", padding=_IN_PLANE), "4x4 patches come out"
    ),
    Case("c_out_129", _conv("1x64x3x4x8", "129x64x3x3x3", padding=_CAUSAL), "one column too many"),
    Case(
        "c_out_192", _conv("1x64x3x4x8", "192x64x3x3x3", padding=_CAUSAL), "a tile and a half out"
    ),
    Case(
        "ragged_channels",
        _conv("2x33x3x5x7", "129x33x3x3x3", padding=1),
        "nothing is a multiple of anything",
        dtype="float32",
    ),
    Case("image_2x8", _conv("1x128x3x2x8", "128x128x3x3x3", padding=_IN_PLANE), "smallest tile"),
    Case("one_pixel", _conv("1x64x1x1x1", "64x64x3x3x3", padding=1), "26 of 27 taps never meet it"),
    Case("one_output", _conv("1x24x3x3x3", "40x24x3x3x3"), "a dot product per channel"),
    Case("one_column", _conv("1x16x3x37x1", "24x16x3x3x3", padding=1), "width 1"),
    Case("one_row", _conv("1x16x3x1x37", "24x16x3x3x3", padding=1), "height 1"),
    Case("width_45", _conv("1x96x3x5x45", "32x96x3x3x3", padding=_IN_PLANE), "an odd width"),
    Case("width_131", _conv("1x16x3x3x131", "32x16x3x3x3", padding=_IN_PLANE), "odd and prime"),
    Case("width_513", _conv("1x24x2x513", "32x24x3x3", padding=1), "a row just over a PSUM bank"),
    Case("width_1030", _conv("1x16x1x3x1030", "8x16x1x3x3", padding=_IN_PLANE), "over two banks"),
    Case(
        "rows_beyond_sbuf",
        _conv("1x8x300x500", "8x8x3x3", padding=1),
        "an image whose rows do not fit at once",
        dtype="float32",
    ),
    Case(
        "frames_beyond_sbuf",
        _conv("1x4x6x150x260", "4x4x3x3x3", padding=_CAUSAL),
        "a video whose frames do not fit at once",
        dtype="float32",
    ),
    Case(
        "weights_beyond_sbuf",
        _conv("1x512x3x2x4", "512x512x3x3x3", padding=_IN_PLANE),
        "28 MB of filters",
        dtype="float32",
    ),
    Case(
        "channels_beyond_windows",
        _conv("1x640x3x2x8", "64x640x3x3x3", padding=_IN_PLANE),
        "more tiles of input channels than windows at once",
    ),
    Case(
        "channels_beyond_windows_wide",
        _conv("1x512x3x4x320", "8x512x3x3x3", padding=_IN_PLANE),
        "the same where several windows are one row block",
    ),
    Case("borders_of_nothing", _conv("1x20x3x4", "24x20x1x1", padding=2), "outputs that are bias"),
    Case(
        "padding_beyond_kernel",
        _conv("1x20x2x3x4", "24x20x3x3x3", padding=4),
        "whole output frames that only see padding",
    ),
    Case(
        "padding_behind_frames",
        _conv("1x26x6x2x3", "5x26x2x3x3", padding=((0, 2), 1, 1)),
        "last frames that only see padding, the first ones none",
        dtype="float32",
    ),
    Case(
        "padding_around_frames",
        _conv("3x13x6x4x4", "1x13x5x3x3", padding=((4, 6), (1, 2), 1)),
        "videos with frames of padding on both sides",
    ),
    Case(
        "padding_all_different",
        _conv("1x20x4x5x6", "24x20x3x3x3", padding=((1, 0), (0, 2), (2, 1))),
        "each side its own",
        dtype="float16",
    ),
    Case(
        "stride_beyond_kernel",
        _conv("1x40x7x8x11", "24x40x2x2x2", stride=3),
        "inputs nobody reads",
    ),
    Case("pointwise_strided", _conv("1x40x5x6x7", "24x40x1x1x1", stride=2), "every second pixel"),
    Case("even_kernel", _conv("1x32x4x5x6", "40x32x2x2x2"), "no centre tap"),
    Case(
        "even_kernel_same",
        _conv("1x32x5x6x7", "40x32x4x4x4", padding="same"),
        "no centre tap, padding one longer behind",
    ),
    Case(
        "frame_pairs",
        _conv("1x64x6x5x9", "64x64x2x3x3", stride=(2, 1, 1), padding=_IN_PLANE),
        "two frames to one",
    ),
    Case(
        "dilated_in_plane",
        _conv("1x32x3x9x11", "32x32x3x3x3", padding=(1, 2, 2), dilation=(1, 2, 2)),
        "holes between rows and columns",
    ),
    Case(
        "dilated_in_time",
        _conv("1x32x8x5x6", "32x32x3x3x3", padding=((4, 0), 1, 1), dilation=(2, 1, 1)),
        "causal with holes between frames",
    ),
    Case(
        "dilated_and_strided",
        _conv("1x24x9x11x13", "40x24x3x3x3", stride=2, padding=(2, 3, 1), dilation=(2, 3, 1)),
        "stride and holes do not divide each other",
        dtype="float16",
    ),
    Case(
        "dilated_beyond_image",
        _conv("1x24x3x3x3", "24x24x3x3x3", padding=4, dilation=4),
        "only the centre tap ever meets the image",
    ),
    Case("batch_2", _conv("2x48x4x5x6", "64x48x3x3x3", padding=_CAUSAL), "two videos"),
    Case("batch_5_pointwise", _conv("5x48x2x3x4", "20x48x1x1x1"), "a batched matrix product"),
    Case("batch_7_images", _conv("7x20x5x6", "24x20x3x3", padding=1), "images as frames"),
    Case("signal", _conv("2x24x50", "40x24x5", stride=2, padding=2), "conv1d"),
    Case("signal_long", _conv("1x16x1500", "24x16x3", padding=1), "conv1d over three banks"),
    Case(
        "signal_batch", _conv("9x12x17", "20x12x4", padding=((3, 0),)), "causal conv1d, even kernel"
    ),
    Case("plane", _conv("2x20x9x13", "36x20x3x3"), "conv2d without padding"),
    Case(
        "plane_7x7",
        _conv("1x3x21x23", "64x3x7x7", stride=2, padding=3),
        "first layer of an image classifier",
    ),
    Case(
        "plane_tall_kernel",
        _conv("1x70x6x7", "50x70x5x1", padding=(2, 0)),
        "taps along height alone",
        dtype="float32",
    ),
)

CASES = BENCHMARK + EDGE
