"""ModelTrace: the convolutions of one run of a model, and all that it did besides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from nkisim.machine import Machine
from trnconv.geometry import ConvShape
from trnconv.problem.conv_problem import ConvProblem, Shape
from trnconv.problem.epilogue import IDENTITY, ITEM_BYTES, PLAIN_EPILOGUE, Epilogue
from trnconv.problem.limits import DEFAULT_BUDGET
from trnconv.problem.policy import DEFAULT_POLICY, Policy
from trnconv.problem.prologue import PLAIN_PROLOGUE, Prologue
from trnconv.traces.operation import RMS_NORM, RMS_NORM_STEP, Operation

CACHE = "cache"  # frames that a model keeps a copy of
COPY = "clone"  # torch's operator for any copy


@dataclass(frozen=True)
class TracedConv:
    """One convolution as a kernel gets it."""

    module: str  # dotted name
    shape: Shape
    dtype: str = "bfloat16"
    pieces: tuple[int, ...] = ()  # frames of each tensor the input lies in; empty: one
    epilogue: Epilogue = PLAIN_EPILOGUE
    reproducible: bool = False
    instead_of: ConvShape | None = None  # what the model asked for, if this is a cheaper equal
    prologue: Prologue = PLAIN_PROLOGUE

    def problem(
        self, machine: Machine, budget: int = DEFAULT_BUDGET, policy: Policy = DEFAULT_POLICY
    ) -> ConvProblem:
        """What it would cost there, with at most so many instructions a launch."""
        return ConvProblem(
            shape=self.shape,
            machine=machine,
            dtype=self.dtype,
            pieces=self.pieces,
            epilogue=self.epilogue,
            reproducible=self.reproducible,
            budget=budget,
            policy=policy,
            prologue=self.prologue,
        )


@dataclass(frozen=True)
class Moved:
    """Bytes read and written by padding, concatenation and the like, all of a kind together."""

    kind: str  # pad, cat, upsample, cache, ...
    times: int
    moved_bytes: int


@dataclass(frozen=True)
class LeftToTorch:
    """A convolution that is left to torch, and why."""

    module: str
    reason: str


@dataclass(frozen=True)
class ModelTrace:
    """One encode or decode of a model at one size, batch 1."""

    model: str
    phase: str
    frames: int
    height: int
    width: int
    works: tuple[tuple[TracedConv, int], ...]  # with how often each was called
    moved: tuple[Moved, ...]
    left_to_torch: tuple[LeftToTorch, ...]
    patched: int  # modules whose convolutions run on our kernels
    peak_bytes: int  # of activations and caches alive at once
    largest_bytes: int
    largest_shape: tuple[int, ...]
    weight_bytes: int
    source: str  # what it was traced with
    operations: tuple[tuple[Operation, int], ...]  # all but the convolutions, with how often each
    operations_unfused: tuple[tuple[Operation, int], ...]  # the same without norms of ours
    operations_as_is: tuple[tuple[Operation, int], ...]  # of the model without our rewrites

    @property
    def calls(self) -> int:
        """Convolutions called."""
        return sum(calls for _, calls in self.works)

    @property
    def copied_bytes(self) -> int:
        """HBM traffic of what is no convolution's, read and written."""
        return sum(copy.moved_bytes for copy in self.moved)


def without_norms(trace: ModelTrace) -> ModelTrace:
    """The same where no norm is a kernel of ours: operation by operation, and caches are copied."""
    apart = replace(without_fused_norms(trace), operations=trace.operations_unfused)
    more = _copied(apart) - _copied(trace)
    copies = [copy for copy in trace.moved if copy.kind != CACHE]
    caches = sum(copy.moved_bytes for copy in trace.moved if copy.kind == CACHE)
    times = sum(copy.times for copy in trace.moved if copy.kind == CACHE)
    return replace(apart, moved=(*copies, Moved(CACHE, times, caches + max(0, more))))


def _copied(trace: ModelTrace) -> int:
    return sum(calls * op.moved_bytes for op, calls in trace.operations if op.kind == COPY)


def without_fused_norms(trace: ModelTrace) -> ModelTrace:
    """The same with norms of their own in place of convolutions' prologues and epilogues.

    Residuals of lower resolution are copied first.
    """
    if all(_is_plain(work) for work, _ in trace.works):
        return trace
    bare = without_norm_epilogues(trace, lambda _: True)
    works: Counter[TracedConv] = Counter()
    operations: Counter[Operation] = Counter()
    for work, calls in bare.works:
        epilogue = replace(work.epilogue, coarse=None)
        works[replace(work, prologue=PLAIN_PROLOGUE, epilogue=epilogue)] += calls
        for operation in _spread_residual(work):
            operations[operation] += calls
    for operation, calls in bare.operations:
        operations[operation.as_norm()] += calls
    return replace(trace, works=tuple(works.items()), operations=tuple(operations.items()))


def _is_plain(work: TracedConv) -> bool:
    return (
        work.prologue == PLAIN_PROLOGUE
        and work.epilogue.norm is None
        and work.epilogue.coarse is None
    )


def _spread_residual(work: TracedConv) -> tuple[Operation, ...]:
    """The copy that makes a coarse residual as large as the output."""
    coarse, shape = work.epilogue.coarse, work.shape
    if coarse is None:
        return ()
    sizes = (shape.batch, shape.c_out, *shape.out_sizes())
    item = ITEM_BYTES[work.dtype]
    read, written = prod(coarse.sizes(sizes)) * item, prod(sizes) * item
    return (Operation(COPY, sizes, work.dtype, read, written, (COPY,), read + written),)


def without_norm_epilogues(trace: ModelTrace, is_apart: Callable[[TracedConv], bool]) -> ModelTrace:
    """The same with norms of their own in place of these convolutions' epilogues."""
    works: Counter[TracedConv] = Counter()
    operations: Counter[Operation] = Counter()
    for work, calls in trace.works:
        if work.epilogue.norm is None or not is_apart(work):
            works[work] += calls
            continue
        works[replace(work, epilogue=replace(work.epilogue, norm=None))] += calls
        for operation in norms_of(work):
            operations[operation] += calls
    for operation, calls in trace.operations:
        operations[operation] += calls
    return replace(trace, works=tuple(works.items()), operations=tuple(operations.items()))


def norms_of(work: TracedConv) -> tuple[Operation, ...]:
    """The norms at a convolution's end, as kernels of their own would do them."""
    norm, shape = work.epilogue.norm, work.shape
    if norm is None:
        return ()
    frames, *plane = shape.out_sizes()
    norms = []
    for count in norm.frames(frames):
        sizes = (shape.batch, shape.c_out, count * prod(plane))
        moved = prod(sizes) * ITEM_BYTES[work.dtype]
        norms.append(
            Operation(
                RMS_NORM,
                (shape.batch, shape.c_out, count, *plane),
                work.dtype,
                moved,
                moved,
                (RMS_NORM_STEP,),
                2 * moved,
                sizes,
                "" if norm.activation == IDENTITY else norm.activation,
            )
        )
    return tuple(norms)
