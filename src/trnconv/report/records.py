"""From priced convolutions to the records of a report: rows, sums and budgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nkisim.fabric import FABRICS
from nkisim.machine import Machine, Reading
from trnconv.geometry import ConvShape
from trnconv.model_plan import KindPlan
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.limits import GRAPH_INSTRUCTIONS
from trnconv.report.content import Budget, KindRow, LayerRow, LayerTimeline, MachineFacts, Totals
from trnconv.report.schedules import macs_per_ns
from trnconv.runtime.pricing import Price

BaselineOf = Callable[[ConvShape], float | None]


@dataclass(frozen=True)
class Convolution:
    """Equal convolutions, however many modules call them, and what one call costs."""

    modules: tuple[str, ...]
    problem: ConvProblem
    calls: int
    price: Price
    asked: ConvShape | None  # what the model asked for; None for a transposed convolution

    @property
    def macs(self) -> int:
        """Multiply-adds of one call, as the model asked for it."""
        return (self.asked or self.problem.shape).macs()

    @property
    def cores(self) -> int:
        """Of a launch."""
        return len(self.price.plans)

    @property
    def total_ns(self) -> float:
        """All calls one after the other."""
        return self.calls * self.price.ns


def by_time(convolutions: Sequence[Convolution]) -> list[Convolution]:
    """Those that take the most time first."""
    return sorted(convolutions, key=lambda convolution: -convolution.total_ns)


def layer_rows(ordered: Sequence[Convolution], baseline: BaselineOf) -> tuple[LayerRow, ...]:
    """A row for each, numbered from 1."""
    whole = sum(convolution.total_ns for convolution in ordered)
    return tuple(
        _row(number, convolution, whole, baseline) for number, convolution in enumerate(ordered, 1)
    )


def _row(number: int, convolution: Convolution, whole_ns: float, baseline: BaselineOf) -> LayerRow:
    shape, price = convolution.problem.shape, convolution.price
    macs = convolution.macs
    return LayerRow(
        number=number,
        modules=convolution.modules,
        c_in=shape.c_in,
        c_out=shape.c_out,
        kernel=shape.kernel,
        stride=shape.stride,
        size=shape.size,
        out=shape.out_sizes(),
        calls=convolution.calls,
        ns=price.ns,
        total_ns=convolution.total_ns,
        share=convolution.total_ns / whole_ns,
        algorithm=price.plan.plan.family,
        bound=price.bound,
        multiply_adds=macs,
        hbm_bytes=price.hbm_bytes,
        flop_per_byte=2 * macs / price.hbm_bytes,
        tflops=2 * macs / price.ns / 1e3,
        of_peak=macs / price.ns / (convolution.cores * macs_per_ns(convolution.problem.machine)),
        instructions=price.instructions,
        total_instructions=convolution.calls * price.instructions,
        launches=price.launches,
        sbuf_bytes_per_partition=price.plan.cost.sbuf_bytes,
        baseline_ns=None if convolution.asked is None else baseline(convolution.asked),
    )


@dataclass(frozen=True)
class Besides:
    """What a subject does besides convolutions."""

    kinds: tuple[KindPlan, ...] = ()
    as_is_seconds: float = 0.0  # of the model without our rewrites
    copied_bytes: int = 0

    @property
    def seconds(self) -> float:
        """All of it, one kernel after the other."""
        return sum(kind.ns for kind in self.kinds) / 1e9


def kind_rows(besides: Besides, whole_seconds: float) -> tuple[KindRow, ...]:
    """One row for each kind."""
    return tuple(
        KindRow(
            kind=kind.kind,
            calls=kind.calls,
            moved_bytes=kind.moved_bytes,
            as_written_bytes=kind.as_written_bytes,
            seconds=kind.ns / 1e9,
            share=kind.ns / 1e9 / whole_seconds,
            bound=kind.bound,
            price_of=kind.price_of,
        )
        for kind in besides.kinds
    )


def totals_of(
    convolutions: Sequence[Convolution],
    accuracy: str,
    baseline_seconds: float | None,
    besides: Besides,
) -> Totals:
    """Sums over all calls."""

    def summed(amount: Callable[[Convolution], int]) -> int:
        return sum(convolution.calls * amount(convolution) for convolution in convolutions)

    seconds = sum(convolution.total_ns for convolution in convolutions) / 1e9
    return Totals(
        accuracy=accuracy,
        seconds=seconds,
        whole_seconds=seconds + besides.seconds,
        baseline_seconds=baseline_seconds,
        baseline_whole_seconds=(
            None if baseline_seconds is None else baseline_seconds + besides.as_is_seconds
        ),
        calls=sum(convolution.calls for convolution in convolutions),
        launches=summed(lambda convolution: convolution.price.launches),
        multiply_adds=summed(lambda convolution: convolution.macs),
        executed_multiply_adds=summed(lambda convolution: convolution.price.executed_macs),
        hbm_bytes=summed(lambda convolution: convolution.price.hbm_bytes),
        copied_bytes=besides.copied_bytes,
        static_instructions=summed(lambda convolution: convolution.price.instructions),
    )


def machine_facts(machine: Machine, cores: int) -> MachineFacts:
    """The cores of a launch, in the default reading."""
    timing = machine.timing
    engines = cores * timing.dma_engines * timing.dma_bytes_per_ns
    return MachineFacts(
        name=machine.name,
        constants_version=machine.constants,
        reading=Reading.default.value,
        cores=cores,
        peak_tflops=2 * cores * macs_per_ns(machine) / 1e3,
        hbm_gb_per_s=min(engines, float(timing.hbm_bytes_per_ns)),
        sbuf_bytes_per_partition=machine.sbuf_usable_bytes_per_partition,
        psum_banks=machine.psum_banks,
        cores_per_chip=FABRICS[machine.base_name].cores_per_chip,
    )


def instruction_budget(longest: int) -> Budget:
    """Of the longest graph."""
    return Budget(
        name="Instructions of one graph",
        used=longest,
        limit=GRAPH_INSTRUCTIONS,
        unit="",
        note="static, of the longest; above the limit the compiler gives up (NCC_EBVF030)",
    )


def on_chip_budgets(
    timelines: Sequence[LayerTimeline], machine: MachineFacts
) -> tuple[Budget, ...]:
    """SBUF and PSUM at the peak of each layer that was traced."""
    budgets: list[Budget] = []
    for timeline in timelines:
        budgets += [
            Budget(
                name=f"SBUF of a partition, layer {timeline.number}",
                used=timeline.sbuf_peak_bytes_per_partition,
                limit=machine.sbuf_bytes_per_partition,
                unit="B",
                note="peak of the longest launch",
            ),
            Budget(
                name=f"PSUM, layer {timeline.number}",
                used=timeline.psum_peak_banks,
                limit=machine.psum_banks,
                unit="banks",
                note="peak of the longest launch",
            ),
        ]
    return tuple(budgets)
