"""One convolution of torch tensors as ops and backends get it: ConvSpec and ConvCall."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from nkisim.machine import Machine
from trnconv.geometry import NO_MODES, ConvShape, Modes, Triple, input_gradient_shape, lifted
from trnconv.problem.coarse_residual import coarse_residual_of
from trnconv.problem.conv_problem import (
    FORWARD,
    WEIGHT_GRADIENT,
    ConvProblem,
    Shape,
    with_plain_shape,
)
from trnconv.problem.epilogue import (
    BEFORE,
    IDENTITY,
    NO_RESIDUAL,
    Epilogue,
    epilogue_of,
    norm_epilogue_of,
)
from trnconv.problem.policy import DEFAULT_POLICY, Policy, policy_of
from trnconv.problem.prologue import PLAIN_PROLOGUE, Prologue, prologue_of
from trnconv.runtime.launch import LaunchOperands

INPUT_GRADIENT = "input gradient"


@dataclass(frozen=True)
class ConvSpec:
    """How frames are padded, upsampled and convolved, and what happens to the sum."""

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
    accuracy: str = DEFAULT_POLICY.text()  # a policy as text: torch.compile takes no other objects
    prologue_activation: str = (
        ""  # the activation of an input that is scaled and shifted first; empty: it is not
    )
    norm: str = ""  # of the output, as `norm_text` has it; empty: there is none
    coarse: str = ""  # how a residual is stored (`CoarseResidual.text`); empty: as the output is

    @property
    def policy(self) -> Policy:
        """What may be given for speed."""
        return policy_of(self.accuracy)

    @staticmethod
    def of_rank(
        stride: tuple[int, ...],
        pads: tuple[tuple[int, ...], tuple[int, ...]],
        dilation: tuple[int, ...],
        groups: int,
    ) -> ConvSpec:
        """Of a convolution with one to three axes; `pads` are before and after."""
        before, after = pads
        return ConvSpec(
            lifted(stride, 1), lifted(before, 0), lifted(after, 0), lifted(dilation, 1), groups
        )

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

    def epilogue(self, *, residual: bool) -> Epilogue:
        """What a kernel fuses: a residual comes before the activation."""
        epilogue = epilogue_of(self.activation, BEFORE if residual else NO_RESIDUAL, "")
        coarse = coarse_residual_of(self.coarse)
        return replace(epilogue, norm=norm_epilogue_of(self.norm), coarse=coarse)

    @property
    def prologue(self) -> Prologue:
        """What a kernel does to its input first."""
        return prologue_of(self.prologue_activation) if self.prologue_activation else PLAIN_PROLOGUE

    def numbers(self) -> list[int]:
        """As ops take it; `numbered` is the inverse."""
        triples = (self.stride, self.before, self.after, self.dilation, self.upsample, self.skip)
        return [self.groups, *(number for triple in triples for number in triple)]


def numbered(numbers: Sequence[int], modes: Modes = NO_MODES, **options: Any) -> ConvSpec:
    """A spec from what ops take."""
    groups, *rest = numbers
    triples = [(rest[at], rest[at + 1], rest[at + 2]) for at in range(0, len(rest), 3)]
    stride, before, after, dilation, upsample, skip = triples
    return ConvSpec(stride, before, after, dilation, groups, modes, upsample, skip, **options)


def worded(numbers: Sequence[int], words: str, *, reproducible: bool) -> ConvSpec:
    """The same with what `words_of` says."""
    depth, height, width, activation, accuracy, start, norm, coarse = words.split(",")
    return numbered(
        numbers,
        (depth, height, width),
        activation=activation,
        accuracy=accuracy,
        reproducible=reproducible,
        prologue_activation=start,
        norm=norm,
        coarse=coarse,
    )


def words_of(spec: ConvSpec) -> str:
    """Modes, activation, accuracy, start, norm and how a residual is stored, as ops take them."""
    ends = (spec.activation, spec.accuracy, spec.prologue_activation, spec.norm, spec.coarse)
    return ",".join((*spec.modes, *ends))


@dataclass(frozen=True)
class ConvCall:
    """What is wanted of a convolution, and the sizes that operands do not tell."""

    spec: ConvSpec
    wanted: str = FORWARD  # or a gradient
    sizes: tuple[int, ...] = ()  # of x for its gradient, of the kernel for that of the filters

    def shape(self, operands: LaunchOperands) -> Shape:
        """The problem in integers; of the operands, sizes are enough."""
        if self.wanted == WEIGHT_GRADIENT:
            x, dy = operands.inputs
            w = (dy.shape[1], x.shape[1] // self.spec.groups, *self.sizes)
            return self.spec.shape([x.shape], w)
        if self.wanted == INPUT_GRADIENT:
            return input_gradient_shape(self.forward_shape(operands))
        return self.spec.shape([piece.shape for piece in operands.inputs], operands.w.shape)

    def forward_shape(self, operands: LaunchOperands) -> ConvShape:
        """The convolution whose input gradient this is."""
        return self.spec.shape([self.sizes], operands.w.shape)

    def with_input(self, shape: ConvShape) -> ConvCall:
        """The input gradient of another size and padding."""
        spec = replace(self.spec, before=shape.pad_before, after=shape.pad_after, modes=shape.modes)
        return replace(self, spec=spec, sizes=(shape.batch, shape.c_in, *shape.size))

    def problem(
        self, operands: LaunchOperands, dtype: str, machine: Machine, policy: Policy | None = None
    ) -> ConvProblem:
        """What is asked of the planner; `policy` replaces that of the spec."""
        gradient = self.wanted == WEIGHT_GRADIENT
        pieces = () if gradient else tuple(piece.shape[2] for piece in operands.inputs)
        problem = ConvProblem(
            self.shape(operands),
            machine,
            dtype,
            pieces if len(pieces) > 1 else (),
            # sums of a gradient stay float32 until they are rounded once
            epilogue_of(IDENTITY, NO_RESIDUAL, "float32")
            if gradient
            else self.spec.epilogue(residual=operands.residual is not None),
            self.spec.reproducible,
            policy=policy or self.spec.policy,
            direction=WEIGHT_GRADIENT if gradient else FORWARD,
            prologue=self.spec.prologue,
        )
        return with_plain_shape(problem)
