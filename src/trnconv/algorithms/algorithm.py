"""Algorithm: a way to compute a convolution. Every algorithm answers the same problems.

An algorithm says which problems it refuses, proposes plans, prices them, says which a machine
cannot run, and lowers one to a recipe, packed arrays and a kernel. Search, explanation, tuning,
timing and launching ask these, and know no algorithm by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np

from nkisim.machine import Machine, Reading, Timing, find_machine
from trnconv.problem.conv_problem import FORWARD, ConvProblem, Shape
from trnconv.problem.epilogue import ITEM_BYTES, PLAIN_EPILOGUE, Epilogue
from trnconv.problem.prologue import FACTORS, PLAIN_PROLOGUE, Prologue

if TYPE_CHECKING:
    from typing_extensions import Self

Array = np.ndarray[Any, Any]
_LOOP_SHARE = 0.01  # of the time: what iterations add is then little enough


_machine_named = lru_cache(maxsize=16)(find_machine)  # plans are asked for theirs by the million


@lru_cache(maxsize=16)
def _default_timing(machine: str) -> Timing:
    return find_machine(machine).timing.read(Reading.default)


@dataclass(frozen=True)
class ArraySpec:
    """Shape and type of an array that the host packs."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class FilterSources:
    """Where each element of a packed array comes from, for those who pack without this package.

    `numbers` has the element's number among the filters, from 1 on, in the order of
    [C_out, C_in / groups, taps]; 0 is a zero. Before, the taps of each axis are summed by `merged`,
    if that lists any: the filters then have as many taps as there are groups.
    """

    numbers: Array
    merged: tuple[tuple[tuple[int, ...], ...], ...]
    filters: tuple[int, ...]  # sizes, taps merged


@dataclass(frozen=True)
class Plan(ABC):
    """Decisions about a convolution on one core; what follows from them is worked out elsewhere."""

    algorithm: ClassVar[str]  # its name in the planner's table

    shape: Shape
    machine_name: str
    dtype: str
    epilogue: Epilogue = field(default=PLAIN_EPILOGUE, kw_only=True)
    prologue: Prologue = field(default=PLAIN_PROLOGUE, kw_only=True)

    def but(self, **changes: Any) -> Self:
        """The same with other decisions: `dataclasses.replace`, in a fifth of the time.

        Searches make plans by the hundred thousand, and plans check nothing when they are made.
        """
        unknown = changes.keys() - self.__dict__.keys()
        if unknown:
            raise TypeError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}")
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, **changes)
        return other

    @property
    def machine(self) -> Machine:
        """The machine this was planned for."""
        return _machine_named(self.machine_name)

    @property
    def timing(self) -> Timing:
        """Its rates and costs, in the default reading."""
        return _default_timing(self.machine_name)

    @property
    def item_bytes(self) -> int:
        """Bytes of an element of x."""
        return ITEM_BYTES[self.dtype]

    @property
    def family(self) -> str:
        """Which of its algorithm's algorithms, in a word or two."""
        return self.algorithm

    @property
    def piece_frames(self) -> tuple[int, ...]:
        """Frames of each tensor that x lies in."""
        return (self.shape.size[0],)

    @property
    def is_looped(self) -> bool:
        """Whether equal blocks are a hardware loop."""
        return False

    @property
    def is_fenced(self) -> bool:
        """Whether the output is copied onto itself after hardware loops that stored it."""
        return self.is_looped and not self.machine.accepts.unfenced_loops

    @property
    def is_reproducible(self) -> bool:
        """Whether every output is summed alike, however the input is cut."""
        return False

    @property
    def expected_ratio(self) -> float:
        """Expected RMS error over that of a direct convolution of the same type."""
        return 1.0

    def input_specs(self) -> tuple[ArraySpec, ...]:
        """The tensors that a caller gives: x, in its pieces."""
        batch, c_in, size = self.shape.batch, self.shape.c_in, self.shape.size
        return tuple(
            ArraySpec((batch, c_in, frames, *size[1:]), self.dtype) for frames in self.piece_frames
        )

    def factors_spec(self) -> ArraySpec:
        """Scales and shifts of the input's channels, if its start has any."""
        return ArraySpec((self.shape.c_in, FACTORS * len(self.piece_frames)), "float32")

    def scales_spec(self) -> ArraySpec:
        """Scales and shifts of a norm of the outputs, if the end has one."""
        return ArraySpec((self.shape.c_out, FACTORS), "float32")

    @abstractmethod
    def block(self) -> tuple[int, int, int]:
        """Output frames, rows and columns of a block."""

    @abstractmethod
    def in_words(self) -> str:
        """The decisions in a line."""

    def variant(self) -> str:
        """How it differs from other plans of its algorithm, blocks aside, in words."""
        return self.in_words()

    def block_in_words(self) -> str:
        """The outputs of a block, frames x rows x columns, and whether there is a hardware loop."""
        return f"{'x'.join(map(str, self.block()))}{' loop' if self.is_looped else ''}"


P = TypeVar("P", bound=Plan)


def with_bias(array: Array, channels: Array, bias: Array | None) -> Array:
    """An array with the bias of its channel in every element that has one (`bias_channels`)."""
    image, own = array.copy(), channels >= 0
    image[own] = 0 if bias is None else bias.astype(array.dtype)[channels[own]]
    return image


@dataclass(frozen=True)
class Cost:
    """What a plan costs, by the cost model. Modelled: the plan's machine, default reading.

    The time of a short program is that of its schedule (`scheduled`).
    """

    total_ns: float
    weighed_ns: float  # what plans are ranked by: where times are close, traffic counts
    busy: tuple[tuple[str, float], ...]  # ns by resource
    hbm_bytes: int
    sbuf_bytes: int  # of a partition
    instructions: int  # static
    loops_ns: float = 0.0  # what iterations of hardware loops add
    columns: int = 0  # matmul columns that stream through the array
    regions: int = 0  # hardware loops: the compiler takes long for each
    scheduled: bool = False  # whether total_ns is by nkisim's schedule

    @property
    def bound(self) -> str:
        """The busiest resource."""
        return max(self.busy, key=lambda engine: engine[1])[0]

    @property
    def waits_for_iterations(self) -> bool:
        """Whether what iterations of hardware loops add is worth longer iterations."""
        return self.loops_ns > _LOOP_SHARE * self.total_ns

    def busy_ns(self, resource: str) -> float:
        """How long one resource works."""
        return dict(self.busy)[resource]


@dataclass(frozen=True)
class Priced:
    """A legal plan and its cost."""

    plan: Plan
    cost: Cost
    shipped: bool = field(default=False, compare=False)  # whether it came with the package


@dataclass(frozen=True)
class Lowered(Generic[P]):
    """A plan worked out: the recipe of its kernel, and the layout of what the host packs for it."""

    plan: P
    recipe: Any
    arrays: tuple[ArraySpec, ...]
    inputs: tuple[ArraySpec, ...]  # tensors that the caller gives
    outputs: tuple[tuple[int, ...], ...]  # shapes


def shape_alone(problem: ConvProblem) -> dict[str, Any]:
    """The field of a plan that follows from a problem."""
    return {"shape": problem.shape}


def problem_and_plan(plan: Plan) -> list[str]:
    """What is computed, and by which plan."""
    shape = plan.shape
    sizes, taps = ("x".join(map(str, value)) for value in (shape.size, shape.kernel))
    channels = f"{shape.c_in} -> {shape.c_out} channels"
    problem = f"{channels}, {taps} taps, on {shape.batch} x {sizes} {plan.dtype}"
    return [problem, f"  {plan.in_words()}"]


def switched_off(plan: Plan) -> list[str]:
    """What a workaround of the machine keeps from running, whatever the algorithm."""
    if plan.is_looped and not plan.machine.accepts.loops:
        return [f"a hardware loop: {plan.machine_name} has them switched off"]
    return []


def _nothing(*_: Any) -> Any:
    return ()


@dataclass(frozen=True)
class Algorithm(Generic[P]):
    """One way to compute a convolution, as the answers it gives: a row of the planner's table.

    A family is one of its algorithms; each is refused or searched on its own.
    """

    name: str
    plan_type: type[P]
    families: Callable[[ConvProblem], tuple[str, ...]]
    unsupported: Callable[
        [ConvProblem, str], str
    ]  # why a family has no plan at all, in words; or empty
    candidates: Callable[[ConvProblem, str], Iterable[P]]  # worth pricing, for any budget
    cost: Callable[[P], Cost]  # of a plan, legal or not
    violations: Callable[[P], list[str]]  # what keeps a machine from running it; empty if legal
    moved: Callable[[P, ConvProblem], P]  # the same decisions for another shape
    lower: Callable[[P], Any]  # all the kernel does, and is given: a Lowered
    pack: Callable[[Any, Any, Any], tuple[Array, ...]]  # lowered, w, bias -> its arrays
    kernels: tuple[Callable[..., Any], ...]  # for one tensor, for two, for three

    direction: str = FORWARD  # what it computes
    least_gain: float = 0.0  # how much faster than the algorithms before it, to be taken
    takes_residual: bool = False  # whether kernels have an argument for one
    takes_coarse_residual: bool = False  # whether that may be of a lower resolution
    takes_factors: bool = False  # the same of a start's; without, inputs are taken as they are
    takes_scales: bool = False  # the same of a norm of the outputs; without, there is none
    pair_kernels: tuple[Callable[..., Any], ...] = ()  # the same on two cores; empty: on one only
    keeps_budget: bool = False  # whether candidates are within the problem's budget, loops included
    is_worth_asking: Callable[[ConvProblem], bool] = lambda _: True  # whether it may gain anything
    more_candidates: Callable[[ConvProblem, str], Iterable[P]] = _nothing  # if none is short enough
    thorough: Callable[[ConvProblem, str], Iterable[P]] = (
        _nothing  # more than searches have time for
    )
    least_ns: Callable[[P], float] = lambda _: 0.0  # what a plan takes at least; cheap to ask
    floor_ns: Callable[[ConvProblem], float] = lambda _: (
        0.0
    )  # what any plan takes at least; the same
    rank: Callable[[Cost], tuple[float, ...]] = lambda cost: (cost.weighed_ns,)  # best first
    refined: Callable[[P, Cost], Iterable[P]] = _nothing  # a good plan and its variants
    looped: Callable[..., list[Priced]] = _nothing  # algorithm, problem, family, legal: loops
    core_splits: Callable[[ConvProblem], list[tuple[ConvProblem, ConvProblem]]] = (
        _nothing  # for two cores
    )
    loops: Callable[[P], tuple[int, ...]] = _nothing  # trips of hardware loops, in their order
    violations_for: Callable[[P, ConvProblem], list[str]] = _nothing  # of what a problem asks for
    sums_alike: Callable[[ConvProblem, ConvProblem], bool] = lambda *_: True  # a part as the whole
    fits: Callable[[P, ConvProblem], bool] = lambda plan, problem: plan.shape == problem.shape
    problem_fields: Callable[[ConvProblem], dict[str, Any]] = (
        shape_alone  # fields that are no decision
    )
    decisions: Callable[[P], list[str]] = problem_and_plan  # in lines
    # plan, inputs, factors of its start or None: refuse what it cannot hold
    check_inputs: Callable[[P, tuple[Array, ...], Array | None], None] = _nothing
    results: Callable[[Any, Any], tuple[Any, ...]] = lambda _, outputs: tuple(outputs)
    # lowered -> for each array whose bias each of its elements is, -1: none; None: it has none.
    # Empty: another bias packs all arrays anew.
    bias_channels: Callable[[Any], tuple[Array | None, ...]] = _nothing
    # lowered -> where the elements of each array come from; None: not from filters. Empty: nobody
    # can say, and filters are packed by this package alone.
    sources: Callable[[Any], tuple[FilterSources | None, ...]] = _nothing
    # plan, largest |x|, sums of |w| -> error before the sums and most that is summed, by channel
    rounding_errors: Callable[..., tuple[Array, Array] | None] = lambda *_: None

    def __hash__(self) -> int:
        return hash(self.name)

    def unsupported_operands(self, problem: ConvProblem) -> str:
        """What of a problem's start or end its kernels have no argument for, in words."""
        if problem.prologue.scaled and not self.takes_factors:
            return "its kernel takes inputs as they are; scale them before"
        if problem.epilogue.norm is not None and not self.takes_scales:
            return "its kernel leaves outputs as they are; norm them afterwards"
        if problem.epilogue.coarse is not None and not self.takes_coarse_residual:
            return "its kernel adds a residual of the output's shape; upsample it before"
        return ""

    def kernel(self, inputs: int, cores: int = 1) -> Callable[..., Any]:
        """For so many tensors; they, packed arrays, residual, factors, scales and a recipe go in.

        On two cores, each array is followed by the second core's, and recipes are a pair.
        """
        kernels = self.kernels if cores == 1 else self.pair_kernels
        return kernels[min(inputs, len(kernels)) - 1]
