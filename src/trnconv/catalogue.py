"""Every distinct convolution call of 30 open video and image models, as data.

The calls were captured from the model code of diffusers 0.42.1 (torch 2.13.0, meta tensors, batch
1, bf16): what enters each convolution, and how its wrapper padded or cached it. One line of
`data/catalogue.csv` is one distinct call.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from math import prod

from trnconv.errors import UnsupportedError
from trnconv.geometry import (
    ConvShape,
    TransposedShape,
    Triple,
    conv_shape,
    transposed_shape,
)

Sizes = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Call:
    """One convolution as `torch.nn.functional` receives it, and where its input came from."""

    model: str
    scenario: str  # size and number of frames, e.g. 720p81
    phase: str  # encode, decode, or the part of another model
    op: str  # conv1d, conv2d, conv3d, conv_transpose3d
    calls: int  # how often one run of the phase makes this call
    new: Sizes  # shape before the wrapper padded or cached: the new data
    input: Sizes  # shape that enters the convolution
    weight: Sizes
    output: Sizes
    stride: Sizes
    padding: Sizes  # the convolution's own, symmetric zeros
    dilation: Sizes
    groups: int
    bias: bool
    output_padding: Sizes
    time_front: str  # frames the wrapper put before, outermost first: zeros2, zeros1+cache1, ...
    time_back: str
    pad_tblr: Sizes  # rows and columns the wrapper added: top, bottom, left, right
    pad_mode: str  # zeros, replicate or reflect; empty if none were added
    module: str  # the first module that makes the call

    @property
    def dense(self) -> bool:
        """A plain convolution: not grouped, not transposed."""
        return self.groups == 1 and not self.op.startswith("conv_transpose")

    @property
    def macs(self) -> int:
        """Multiply-adds of one call, padding positions included."""
        if self.op.startswith("conv_transpose"):
            return prod(self.input) * prod(self.weight[1:])
        return prod(self.output) * prod(self.weight[1:])

    @property
    def transposed(self) -> bool:
        """A transposed convolution."""
        return self.op.startswith("conv_transpose")

    def shape(self) -> ConvShape:
        """The call as a problem for the planner."""
        if self.transposed:
            raise UnsupportedError(
                f"{self.op} ({self.model}, {self.module}) as a ConvShape: it describes convolutions"
                " that are not transposed. Ask for transposed_shape()."
            )
        return conv_shape(
            self.input,
            self.weight,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
        )

    def transposed_shape(self) -> TransposedShape:
        """A transposed call as a problem for the planner."""
        return transposed_shape(
            self.input,
            self.weight,
            stride=self.stride,
            padding=self.padding,
            output_padding=self.output_padding,
            groups=self.groups,
            dilation=self.dilation,
        )

    def implicit_shape(self) -> ConvShape:
        """The same call with the zeros that its wrapper put into the input as padding.

        Taps that only meet them need no work then. Replicated, reflected and cached values are
        data, and stay in the input.
        """
        shape = self.shape()
        top, bottom, left, right = self.pad_tblr if self.pad_mode == "zeros" else (0, 0, 0, 0)
        before = (_leading_zeros(self.time_front), top, left)
        after = (_leading_zeros(self.time_back), bottom, right)
        added = zip(shape.size, before, after, strict=True)
        size = [full - first - last for full, first, last in added]
        return replace(
            shape,
            size=(size[0], size[1], size[2]),
            pad_before=_sum(shape.pad_before, before),
            pad_after=_sum(shape.pad_after, after),
        )


def _leading_zeros(context: str) -> int:
    """Frames of zeros, outermost, in what a wrapper put before or behind: `zeros1+cache1` is 1."""
    outermost = context.split("+", maxsplit=1)[0]
    return int(outermost.removeprefix("zeros")) if outermost.startswith("zeros") else 0


def _sum(first: Triple, second: Triple) -> Triple:
    return (first[0] + second[0], first[1] + second[1], first[2] + second[2])


@lru_cache(maxsize=1)
def calls() -> tuple[Call, ...]:
    """The whole catalogue, in the order of capture."""
    source = resources.files("trnconv") / "data" / "catalogue.csv"
    with source.open(encoding="utf-8") as lines:
        return tuple(_call(line) for line in csv.DictReader(lines))


def _call(line: dict[str, str]) -> Call:
    return Call(
        model=line["model"],
        scenario=line["scenario"],
        phase=line["phase"],
        op=line["op"],
        calls=int(line["calls"]),
        new=_sizes(line["new"]),
        input=_sizes(line["input"]),
        weight=_sizes(line["weight"]),
        output=_sizes(line["output"]),
        stride=_sizes(line["stride"]),
        padding=_sizes(line["padding"]),
        dilation=_sizes(line["dilation"]),
        groups=int(line["groups"]),
        bias=line["bias"] == "1",
        output_padding=_sizes(line["output_padding"]),
        time_front=line["time_front"],
        time_back=line["time_back"],
        pad_tblr=_sizes(line["pad_tblr"]),
        pad_mode=line["pad_mode"],
        module=line["module"],
    )


def _sizes(text: str) -> Sizes:
    return tuple(int(size) for size in text.split("x")) if text else ()
