"""A made-up run of a causal decoder: small convolutions, chunk by chunk, as Wan calls its own."""

from trnconv.geometry import conv_shape
from trnconv.traces import ModelTrace, TracedConv

CHUNKS = 21


def _work(module, channels, frames, size):
    x = (1, channels, frames + 2, *size)
    return TracedConv(module, conv_shape(x, (channels, channels, 3, 3, 3), padding=(0, 1, 1)))


def _module(name, channels, size):
    """A first chunk of one frame, a second of two, 19 of four."""
    frames = ((1, 1), (2, 1), (4, CHUNKS - 2))
    return [(_work(name, channels, count, size), calls) for count, calls in frames]


def causal_run():
    """Two modules a chunk, one that the first chunk leaves out, one around the chunks."""
    works = [
        (_work("post_quant", 16, 1, (8, 8)), 1),
        *_module("decoder.conv1", 96, (40, 160)),
        *_module("decoder.conv2", 96, (40, 160)),
        *_module("decoder.time_conv", 64, (20, 80))[1:],
    ]
    return ModelTrace(
        model="wan2.1",
        phase="decode",
        frames=81,
        height=720,
        width=1280,
        works=tuple(works),
        moved=(),
        left_to_torch=(),
        patched=4,
        peak_bytes=1,
        largest_bytes=1,
        largest_shape=(1,),
        weight_bytes=1,
        source="made up",
        operations=(),
        operations_unfused=(),
        operations_as_is=(),
    )
