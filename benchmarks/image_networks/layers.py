"""ImageLayer and ImageNetwork, and the sketch that a structure is written down with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod

from trnconv.geometry import ConvShape, conv_shape, transposed_shape
from trnconv.problem.conv_problem import Shape
from trnconv.problem.epilogue import PLAIN_EPILOGUE, Epilogue

HALVED, DOUBLED = 2, 2  # strides and factors of the structures


@dataclass(frozen=True)
class ImageLayer:
    """One convolution. Its batch norm is folded into weights and bias, as for inference."""

    name: str
    shape: Shape
    epilogue: Epilogue = PLAIN_EPILOGUE

    @property
    def weights(self) -> int:
        """Numbers in its filters, without the bias."""
        shape = self.shape
        return shape.c_in * shape.c_out // shape.groups * prod(shape.kernel)

    @property
    def kind(self) -> str:
        """What sort of layer it is, in words: `3x3`, `1x1 stride 2`, `3x3 depthwise`."""
        shape = self.shape
        words = "x".join(map(str, shape.kernel[1:]))
        words += f" stride {shape.stride[1]}" if shape.stride[1] > 1 else ""
        words += " depthwise" if shape.groups > 1 else ""
        if not isinstance(shape, ConvShape):
            return f"{words} transposed"
        return f"{words} upsampled" if shape.upsample[1] > 1 else words


@dataclass(frozen=True)
class ImageNetwork:
    """The convolutions of one forward pass, in order."""

    name: str
    size: str
    batch: int
    source: str  # where the structure is published
    layers: tuple[ImageLayer, ...]

    @property
    def macs(self) -> int:
        """Multiply-adds of the whole batch."""
        return sum(layer.shape.macs() for layer in self.layers)

    @property
    def weights(self) -> int:
        """Numbers in all filters."""
        return sum(layer.weights for layer in self.layers)


@dataclass(frozen=True)
class Planes:
    """What flows between layers: channels of a height and a width."""

    channels: int
    height: int
    width: int

    def joined(self, other: Planes) -> Planes:
        """Both concatenated along the channels."""
        return replace(self, channels=self.channels + other.channels)

    def doubled(self) -> Planes:
        """Upsampled by a step of its own."""
        return replace(self, height=DOUBLED * self.height, width=DOUBLED * self.width)


@dataclass
class Sketch:
    """Notes layers as a structure is followed. Every method returns what comes out."""

    batch: int
    epilogue: Epilogue = PLAIN_EPILOGUE  # of layers that say nothing else
    layers: list[ImageLayer] = field(default_factory=list)

    def conv(
        self,
        name: str,
        x: Planes,
        channels: int,
        kernel: int,
        *,
        stride: int = 1,
        groups: int = 1,
        upsample: int = 1,
        epilogue: Epilogue | None = None,
    ) -> Planes:
        """A convolution that keeps its size, or its share of it; without an end, the usual one."""
        shape = conv_shape(
            (self.batch, x.channels, x.height, x.width),
            (channels, x.channels // groups, kernel, kernel),
            stride=stride,
            padding=kernel // 2,
            groups=groups,
            upsample=upsample,
        )
        self.layers.append(ImageLayer(name, shape, epilogue or self.epilogue))
        return _out(shape)

    def transposed(
        self, name: str, x: Planes, channels: int, kernel: int, *, stride: int, padding: int
    ) -> Planes:
        """A transposed convolution."""
        shape = transposed_shape(
            (self.batch, x.channels, x.height, x.width),
            (x.channels, channels, kernel, kernel),
            stride=stride,
            padding=padding,
        )
        self.layers.append(ImageLayer(name, shape, self.epilogue))
        return _out(shape)


def _out(shape: Shape) -> Planes:
    return Planes(shape.c_out, *shape.out_sizes()[1:])
