"""Published convolutions."""

from __future__ import annotations

from nkisim import Spec
from validation.kernels import conv2d, depthwise_conv1d
from validation.row import Row

CS149 = (
    "xaviergonzalez/asst4-trainium2 at d155261 (Stanford CS149, assignment 4), writeup.md, part 2"
)
AUTOCOMP = (
    "“How we made AWS Trainium 17x faster (for conv1d)”, Autocomp, 17 November 2025, and its trace"
    " in ucb-bar/autocomp"
)
ISSUED_AHEAD = "Products are issued ahead of sums and one row is loaded ahead."


def _image(dtype: str) -> tuple[Spec, Spec, Spec]:
    """x, w and bias of a 3 x 3 convolution, 256 to 256 channels, 224 x 224."""
    return Spec((1, 256, 224, 224), dtype), Spec((256, 256, 3, 3), dtype), Spec((256,), dtype)


CONV2D = (
    Row(
        number="17",
        title="conv2d 3 x 3, 256 to 256 channels, 224 x 224",
        machine="trn2",
        dtype="float16",
        published_us=824,
        source=CS149,
        stream="7,992 matmuls of 222 columns, one output row at a time; 2,664 loads of an input row"
        " (448 B per channel) and four of weights (18 B per filter: they land in the order of the"
        " source's one tensor), with descriptors built beforehand.",
        kernel=conv2d.conv2d,
        arguments=_image("float16"),
        note="All DMAs of the source together leave 25 ns for a descriptor at the published time."
        " Constants 2 had a floor of 43 ns for descriptors built beforehand too, and the ratio was"
        " 1.85, with weights in runs of 2,304 B, against the source (2.11 with the source's).",
    ),
    Row(
        number="17b",
        title="conv2d 3 x 3 and max pooling 2 x 2, 256 to 256 channels, 224 x 224",
        machine="trn2",
        dtype="float16",
        published_us=825,
        source=CS149,
        stream="As row 17; two output rows at a time are reduced by a maximum of 2 x 2.",
        kernel=conv2d.conv2d,
        arguments=_image("float16"),
        options={"pool": 2},
    ),
    Row(
        number="18",
        title="conv2d 3 x 3, 256 to 256 channels, 224 x 224",
        machine="trn2",
        dtype="float32",
        published_us=3_832,
        source=CS149,
        stream="As row 17 in fp32: two passes per matmul, each with a new stationary operand.",
        kernel=conv2d.conv2d,
        arguments=_image("float32"),
        note="Published: 575 cycles a pass, where 222 columns stream in 444; loading the next"
        " stationary operand seems to take longer than streaming. Weights as in row 17.",
    ),
    Row(
        number="18b",
        title="conv2d 3 x 3 and max pooling 2 x 2, 256 to 256 channels, 224 x 224",
        machine="trn2",
        dtype="float32",
        published_us=3_830,
        source=CS149,
        stream="As row 17b in fp32: two passes per matmul, each with a new stationary operand.",
        kernel=conv2d.conv2d,
        arguments=_image("float32"),
        options={"pool": 2},
    ),
)

_SIGNAL = (Spec((8, 512, 2048), "float32"), Spec((512, 3), "float32"))

CONV1D = (
    Row(
        number="27",
        title="depthwise conv1d, baseline",
        machine="trn1",
        dtype="float32",
        published_us=8_007,
        source=AUTOCOMP,
        stream="65,536 products of 3 elements and 65,536 sums of 3; the rows of one image are"
        " loaded together (the whole batch exceeds SBUF).",
        kernel=depthwise_conv1d.prefetched,
        arguments=_SIGNAL,
        chosen_after=ISSUED_AHEAD,
        note="Published active times are 58.6 ns for a product and 62.9 ns for a sum; the"
        " documented issue floor of 64 cycles is 57.1 ns.",
    ),
    Row(
        number="28",
        title="depthwise conv1d, step 3: loops fused",
        machine="trn1",
        dtype="float32",
        published_us=7_934,
        source=AUTOCOMP,
        stream="As row 27, a row at a time; steps 1 and 2 (8.007 and 8.010 ms) do not change the"
        " stream of row 27.",
        kernel=depthwise_conv1d.fused,
        arguments=_SIGNAL,
        chosen_after=ISSUED_AHEAD,
    ),
    Row(
        number="29",
        title="depthwise conv1d, step 4: outputs in PSUM",
        machine="trn1",
        dtype="float32",
        published_us=5_602,
        source=AUTOCOMP,
        stream="65,536 products, 16,384 sums of four outputs and 16,384 additions to a PSUM block"
        " of 512, copied out when full.",
        kernel=depthwise_conv1d.summed_in_psum,
        arguments=_SIGNAL,
        chosen_after=ISSUED_AHEAD
        + " Sums are grouped by four, which the post shows for step 5 only.",
        note="The post counts instructions for step 5 only; that step 4 adds four outputs at a time"
        " is inferred.",
    ),
    Row(
        number="30",
        title="depthwise conv1d, step 5: filter in PSUM",
        machine="trn1",
        dtype="float32",
        published_us=4_955,
        source=AUTOCOMP,
        stream="65,536 products with the filter in PSUM and 16,384 sums of four outputs.",
        kernel=depthwise_conv1d.filter_in_psum,
        arguments=_SIGNAL,
        options={"wide": False},
        chosen_after=ISSUED_AHEAD,
    ),
    Row(
        number="31",
        title="depthwise conv1d, step 6: tile hint",
        machine="trn1",
        dtype="float32",
        published_us=461,
        source=AUTOCOMP,
        stream="512 products and 512 sums of 128 outputs each, on overlapping windows.",
        kernel=depthwise_conv1d.filter_in_psum,
        arguments=_SIGNAL,
        options={"wide": True},
        chosen_after=ISSUED_AHEAD + " In plain order: 1.43.",
        note="The source clears whole padded rows on the Vector engine, 60 us that a compiler may"
        " move elsewhere.",
    ),
)

CONVOLUTION_ROWS = (*CONV2D, *CONV1D)
