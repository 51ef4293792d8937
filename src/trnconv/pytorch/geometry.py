"""Lists of integers, as ops of torch.library take them, to problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trnconv.geometry import NO_MODES, ConvShape, Modes, Triple, conv_shape
from trnconv.plan.accuracy import DEFAULT_POLICY, Policy, policy_of
from trnconv.plan.ends import BEFORE, IDENTITY, NO_RESIDUAL, End, end_of


@dataclass(frozen=True)
class Window:
    """How a convolution moves: per axis stride, padding before and after, dilation; and groups."""

    stride: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @staticmethod
    def of(
        stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int
    ) -> Window:
        """`padding` has the numbers before all axes, then those after."""
        rank = len(stride)
        return Window(
            tuple(stride), tuple(padding[:rank]), tuple(padding[rank:]), tuple(dilation), groups
        )

    @property
    def pads(self) -> tuple[tuple[int, int], ...]:
        """(before, after) of each axis."""
        return tuple(zip(self.before, self.after, strict=True))

    def forward(self, x: Sequence[int], w: Sequence[int]) -> ConvShape:
        """The convolution of tensors of these shapes."""
        return conv_shape(
            x,
            w,
            stride=self.stride,
            padding=self.pads,
            dilation=self.dilation,
            groups=self.groups,
        )


@dataclass(frozen=True)
class Splice:
    """How the frames are padded, upsampled and convolved, and what happens to the sum."""

    stride: Triple = (1, 1, 1)
    before: Triple = (0, 0, 0)
    after: Triple = (0, 0, 0)
    dilation: Triple = (1, 1, 1)
    groups: int = 1
    modes: Modes = NO_MODES
    upsample: Triple = (1, 1, 1)
    skip: Triple = (0, 0, 0)  # repeated positions left out at the front
    activation: str = IDENTITY
    reproducible: bool = False
    policy: Policy = DEFAULT_POLICY

    def shape(self, pieces: Sequence[Sequence[int]], w: Sequence[int]) -> ConvShape:
        """The problem for tensors of these shapes."""
        first = pieces[0]
        return ConvShape(
            batch=first[0],
            c_in=first[1],
            c_out=w[0],
            size=(sum(piece[2] for piece in pieces), first[3], first[4]),
            kernel=(w[2], w[3], w[4]),
            stride=self.stride,
            dilation=self.dilation,
            pad_before=self.before,
            pad_after=self.after,
            groups=self.groups,
            modes=self.modes,
            upsample=self.upsample,
            skip=self.skip,
        )

    def end(self, *, residual: bool) -> End:
        """What a kernel fuses: a residual comes before the activation."""
        return end_of(self.activation, BEFORE if residual else NO_RESIDUAL, "")

    def numbers(self) -> list[int]:
        """As the op takes it; `numbered` is the inverse."""
        triples = (self.stride, self.before, self.after, self.dilation, self.upsample, self.skip)
        return [self.groups, *(each for triple in triples for each in triple)]


def numbered(
    numbers: Sequence[int], modes: str, activation: str, accuracy: str, *, reproducible: bool
) -> Splice:
    """A splice of what the op takes."""
    groups, *rest = numbers
    triples = [(rest[at], rest[at + 1], rest[at + 2]) for at in range(0, len(rest), 3)]
    stride, before, after, dilation, upsample, skip = triples
    depth, height, width = modes.split(",")
    return Splice(
        stride=stride,
        before=before,
        after=after,
        dilation=dilation,
        groups=groups,
        modes=(depth, height, width),
        upsample=upsample,
        skip=skip,
        activation=activation,
        reproducible=reproducible,
        policy=policy_of(accuracy),
    )
