"""What a model does besides convolutions, priced as if each operation was a kernel of its own.

Norms and attention have kernels of ours, with prices of their own (`trnconv.fused_ops`). Anything
else has the price of a kernel that reads HBM and writes it once, and multiplies at the Tensor
engine's peak: none is faster. A patched model runs norms and attention on our kernels. All else is
left to torch, and on a device to its compiler: what that would take is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from nkisim.machine import Machine, Reading
from trnconv.fused_ops.attention.problem import Attention
from trnconv.fused_ops.group_norm.problem import GroupNorm
from trnconv.fused_ops.modulation.problem import Modulation
from trnconv.fused_ops.price import LaunchPrice
from trnconv.fused_ops.rms_norm.problem import RmsNorm
from trnconv.problem.epilogue import IDENTITY
from trnconv.traces.operation import (
    ATTENTION,
    GROUP_NORM,
    GROUP_STATISTICS,
    MODULATION,
    PRODUCT,
    RMS_NORM,
    Operation,
)

HBM, TENSOR = "hbm", "tensor"
KERNEL, BOUND = "a kernel of ours", "its bytes and products"  # what a price is of


@dataclass(frozen=True)
class OperationPlan:
    """Equal operations, and what one of them would take as a kernel of its own."""

    operation: Operation
    calls: int
    call_ns: float
    bound: str  # what decides: HBM, or an engine
    price_of: str  # KERNEL or BOUND
    instructions: int = 0  # static, of one, as a compiler counts them; of a kernel of ours
    regions: int = 0  # hardware loops of one, likewise

    def in_a_launch(self, launches: int) -> int:
        """How many of them a graph has that is launched so often, and does most of a run.

        What only other graphs do is called less often than this one is launched; what they do as
        well adds less than one a launch.
        """
        return self.calls // launches

    @property
    def ns(self) -> float:
        """All of them together."""
        return self.calls * self.call_ns

    @property
    def moved_bytes(self) -> int:
        """Read and written, by all of them."""
        return self.calls * self.operation.moved_bytes


@dataclass(frozen=True)
class KindPlan:
    """All operations of a kind."""

    kind: str
    calls: int
    moved_bytes: int
    as_written_bytes: int  # read and written by torch's operators, one by one
    ns: float
    bound: str  # of the one that takes longest
    price_of: str  # likewise


def operation_plans(
    operations: Iterable[tuple[Operation, int]], machine: Machine, cores: int
) -> tuple[OperationPlan, ...]:
    """Every operation with its price on so many cores of a launch."""
    return tuple(
        _priced(operation, calls, _price(operation, machine, cores))
        for operation, calls in operations
    )


def by_kind(plans: Iterable[OperationPlan]) -> tuple[KindPlan, ...]:
    """Operations of a kind together, those that take longest first."""
    kinds: dict[str, list[OperationPlan]] = {}
    for plan in plans:
        kinds.setdefault(plan.operation.kind, []).append(plan)
    kind_plans = [_together(kind, plans_of_kind) for kind, plans_of_kind in kinds.items()]
    return tuple(sorted(kind_plans, key=lambda kind: -kind.ns))


def _together(kind: str, plans: Sequence[OperationPlan]) -> KindPlan:
    longest = max(plans, key=lambda plan: plan.ns)
    return KindPlan(
        kind,
        sum(plan.calls for plan in plans),
        sum(plan.moved_bytes for plan in plans),
        sum(plan.calls * plan.operation.step_bytes for plan in plans),
        sum(plan.ns for plan in plans),
        longest.bound,
        longest.price_of,
    )


def as_written_ns(
    operations: Iterable[tuple[Operation, int]], machine: Machine, cores: int
) -> float:
    """All operations with a kernel for each of torch's operators, none faster than one for all."""
    rate = hbm_bytes_per_ns(machine, cores)
    return sum(
        calls * max(operation.step_bytes / rate, _price(operation, machine, cores).ns)
        for operation, calls in operations
    )


def _priced(operation: Operation, calls: int, price: LaunchPrice) -> OperationPlan:
    price_of = KERNEL if price.instructions else BOUND
    static = (price.instructions, price.regions)
    return OperationPlan(operation, calls, price.ns, price.bound, price_of, *static)


@lru_cache(maxsize=4096)
def _price(operation: Operation, machine: Machine, cores: int) -> LaunchPrice:
    """Of a kernel of ours; or of no instructions, and the time of its bytes and products."""
    problem = _problem(operation)
    if isinstance(problem, GroupNorm) and operation.kind == GROUP_STATISTICS:
        return _statistics_price(problem, machine, cores)
    if problem is not None and not problem.refuses(machine, cores):
        return problem.price(machine, cores)
    moving = operation.moved_bytes / hbm_bytes_per_ns(machine, cores)
    multiplying = _tensor_ns(operation, machine, cores)
    busy = ((HBM, moving), (TENSOR, multiplying))
    return LaunchPrice(max(moving, multiplying), 0, 0, operation.moved_bytes, busy)


def _statistics_price(problem: GroupNorm, machine: Machine, cores: int) -> LaunchPrice:
    """Statistics and factors, a launch after the other."""
    first, *others = (
        part.statistics_price(machine, cores) + part.scale_shift_price(machine, cores)
        for part in problem.in_launches()
    )
    return sum(others, start=first)


def _problem(
    operation: Operation,
) -> RmsNorm | GroupNorm | Modulation | Attention | None:
    """What a kernel of ours would be asked; None if there is none for it.

    A mask of an attention may spare it half of its products: where it is torch's, which frames it
    hides is not known, and it is priced without.
    """
    activation = operation.activation or IDENTITY
    if operation.kind == RMS_NORM:
        images, channels, positions = operation.sizes
        return RmsNorm(channels, positions, operation.dtype, activation, images)
    if operation.kind in (GROUP_NORM, GROUP_STATISTICS):
        images, channels, groups, positions = operation.sizes
        return GroupNorm(images, channels, groups, positions, operation.dtype, activation)
    if operation.kind == MODULATION:
        channels, rows, columns, factor, *frames = operation.sizes
        how = (operation.dtype, activation)
        return Modulation(channels, rows, columns, factor, tuple(frames), *how)
    if operation.kind == ATTENTION:
        batch, queries, keys, head, _, *frame_tokens = operation.sizes
        frame = (frame_tokens[0] or None) if frame_tokens else None
        return Attention(batch, queries, head, frame, operation.dtype) if queries == keys else None
    return None


def hbm_bytes_per_ns(machine: Machine, cores: int) -> float:
    """What the DMA engines of so many cores move, within what their HBM gives."""
    timing = machine.timing.read(Reading.default)
    return min(cores * timing.dma_engines * timing.dma_bytes_per_ns, timing.hbm_bytes_per_ns)


def _tensor_ns(operation: Operation, machine: Machine, cores: int) -> float:
    """The Tensor engine at its products, each line of the array busy."""
    timing = machine.timing.read(Reading.default)
    a_ns = cores * machine.partitions**2 * timing.pe_columns_per_ns
    return _multiply_adds(operation) / a_ns


def _multiply_adds(operation: Operation) -> int:
    if operation.kind == ATTENTION:
        batch, queries, keys, head, *_ = operation.sizes
        return 2 * batch * queries * keys * head
    if operation.kind == PRODUCT:
        batch, rows, summed, columns = operation.sizes
        return batch * rows * summed * columns
    return 0
