"""What a launch takes, by the cost model; and what engines take for an instruction.

Modelled: constants of the machine in the default reading, as nkisim's clock has them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from nkisim.machine import Machine, Reading, Timing
from trnconv.algorithms.dma import descriptor_ns, issue_ns, latency_ns
from trnconv.fused_ops.chain import Stage, Stages, busy_of, chain_ns
from trnconv.fused_ops.sweep import ONCE, SweepRow, row_steps

SCALAR, VECTOR, TENSOR, GPSIMD = "scalar", "vector", "tensor", "gpsimd"
DMA, ISSUE, HBM = "dma", "dma issue", "hbm"
_EVERY_TABLE = ("identity", "relu")
_HALVES = 2  # elements a cycle of a sum of bf16


@dataclass(frozen=True)
class LaunchPrice:
    """What launches take, one after the other; of two cores, the one that ends last."""

    ns: float
    instructions: int  # static, as a compiler counts them
    regions: int = 0  # hardware loops
    hbm_bytes: int = 0  # read and written, by all cores
    busy: tuple[tuple[str, float], ...] = ()  # ns by resource

    @property
    def bound(self) -> str:
        """The busiest resource."""
        return max(self.busy, key=lambda pair: pair[1])[0]

    def share(self, resource: str) -> float:
        """The part of the time in which a resource works."""
        return dict(self.busy)[resource] / self.ns

    def __add__(self, other: LaunchPrice) -> LaunchPrice:
        """One launch after another."""
        busy = dict(self.busy)
        for resource, ns in other.busy:
            busy[resource] = busy.get(resource, 0.0) + ns
        return LaunchPrice(
            self.ns + other.ns,
            self.instructions + other.instructions,
            self.regions + other.regions,
            self.hbm_bytes + other.hbm_bytes,
            tuple(busy.items()),
        )


def slowest(prices: Iterable[LaunchPrice], hbm_bytes: int) -> LaunchPrice:
    """A launch of several cores: the core that ends last, with what all of them move."""
    return replace(max(prices, key=lambda price: price.ns), hbm_bytes=hbm_bytes)


@dataclass(frozen=True)
class Clock:
    """Times of instructions on one core of a launch, ns."""

    machine: Machine
    cores: int
    timing: Timing  # in the default reading

    def scalar(self, elems: float) -> float:
        """The Scalar engine is busy."""
        cycles = max(self.timing.engine_min_cycles, elems + self.timing.scalar_startup_cycles)
        return cycles / self.timing.scalar_ghz

    def scalar_latency(self, elems: float) -> float:
        """Until another engine may read its result."""
        cycles = elems + self.timing.scalar_latency_cycles
        return cycles / self.timing.scalar_ghz + self.timing.semaphore_ns

    @property
    def read_out(self) -> float:
        """What reading a sum that the Scalar engine has kept takes it."""
        return self.timing.accumulator_read_cycles / self.timing.scalar_ghz

    def vector(self, cycles: float) -> float:
        """The Vector engine is busy."""
        cycles = max(self.timing.engine_min_cycles, cycles + self.timing.vector_startup_cycles)
        return cycles / self.timing.vector_ghz

    def narrow_sum(self, elems: float) -> float:
        """The Vector engine is busy with a sum of bf16."""
        return self.vector(elems / _HALVES)

    def vector_latency(self, cycles: float) -> float:
        """Until another engine may read its result."""
        cycles += self.timing.vector_latency_cycles
        return cycles / self.timing.vector_ghz + self.timing.semaphore_ns

    def gpsimd(self, elems: float) -> float:
        """The GpSimd engine is busy, and its result is there when it ends."""
        cycles = self.timing.gpsimd_startup_cycles + elems * self.timing.gpsimd_cycles_per_elem
        return cycles / self.timing.gpsimd_ghz

    def matmul(self, columns: float, *, wide: bool = False) -> float:
        """The Tensor engine is busy with one matmul of many; `wide`: of float32."""
        if wide:
            return self.wide_matmul(columns)
        cycles = max(columns, self.timing.pe_min_cycles) + self.timing.pe_gap_cycles
        return cycles / self.timing.pe_columns_per_ns

    def wide_matmul(self, columns: float) -> float:
        """One of float32: passes with a load of weights between them."""
        timing = self.timing
        streamed = timing.pe_fp32_cycles_per_column * max(columns, timing.pe_min_cycles)
        before = max(streamed + timing.pe_gap_cycles, timing.weight_load_fp32_cycles)
        cycles = (timing.pe_fp32_passes - 1) * before + streamed + timing.pe_gap_cycles
        return cycles / timing.pe_columns_per_ns

    def warming(self, work_ns: float) -> float:
        """Work of a Tensor engine that is cold: slow until it has worked for a while."""
        rate, warm = self.timing.pe_cold_rate, self.timing.pe_warm_ns
        return min(work_ns / rate, work_ns + warm * (1 - rate))

    def matmul_latency(self) -> float:
        """From its end until another engine may read its result."""
        return self.timing.pe_latency_cycles / self.timing.pe_columns_per_ns + (
            self.timing.semaphore_ns
        )

    def moved(self, runs: float, run_bytes: float) -> float:
        """Runs on all DMA engines together."""
        return runs * descriptor_ns(self.timing, run_bytes) / self.timing.dma_engines

    def moved_alone(self, runs: int, run_bytes: float) -> float:
        """The same of one transfer, which waits for the engine that has most of it."""
        most = -(-runs // self.timing.dma_engines)
        return most * descriptor_ns(self.timing, run_bytes)

    def hbm(self, total_bytes: float) -> float:
        """HBM, which the cores of a launch share."""
        return self.cores * total_bytes / self.timing.hbm_bytes_per_ns

    def load(self, runs: int, run_bytes: float, transfers: int = 1) -> Stages:
        """Loads of a step: so many runs in so many transfers."""
        moved = self.moved(runs, run_bytes)
        alone = max(moved, self.moved_alone(-(-runs // transfers), run_bytes))
        latency = self.dma_latency + max(alone, (transfers - 1) * self.issue)
        return (*self._shared(runs * run_bytes, transfers), Stage(DMA, moved, latency))

    def store(self, runs: int, run_bytes: float, transfers: int = 1, late: int = 1) -> Stages:
        """Stores of a step, so many steps after its loads; the last ones end last."""
        alone = self.moved_alone(-(-runs // transfers), run_bytes)
        moved = Stage(DMA, self.moved(runs, run_bytes), self.dma_latency + alone, late)
        return (*self._shared(runs * run_bytes, transfers, late), moved)

    def _shared(self, total_bytes: float, transfers: int, late: int = 1) -> Stages:
        return (
            Stage(ISSUE, transfers * self.issue, 0.0, late),
            Stage(HBM, self.hbm(total_bytes), 0.0, late),
        )

    def table(self, activation: str) -> float:
        """The load of a function's table; copies and relu need none."""
        return 0.0 if activation in _EVERY_TABLE else self.timing.table_load_ns

    @property
    def barrier(self) -> LaunchPrice:
        """What cores do that wait for each other; nothing on one core."""
        return LaunchPrice(self.timing.core_barrier_ns if self.cores > 1 else 0.0, self.cores - 1)

    @property
    def issue(self) -> float:
        """What the queues spend on one DMA."""
        return issue_ns(self.timing)

    @property
    def dma_latency(self) -> float:
        """Of a transfer, without its data."""
        return latency_ns(self.timing)


@lru_cache(maxsize=16)
def clock_of(machine: Machine, cores: int) -> Clock:
    """The clock of one of so many cores."""
    return Clock(machine, cores, machine.timing.read(Reading.default))


@dataclass(frozen=True)
class Steps:
    """Steps of a sweep by their width: their stages, and static instructions."""

    stages: Callable[[int], Stages]
    length: Callable[[int], int]
    table_ns: float = 0.0  # of the Scalar engine's function, before its first use
    iteration_length: Callable[[int], int] = lambda _: 0  # static instructions behind so many steps


def rows_price(rows: Sequence[SweepRow], width: int, clock: Clock, steps: Steps) -> LaunchPrice:
    """Rows of a sweep on one core, and the barrier behind them."""
    total, table = clock.barrier, steps.table_ns
    for row in rows:
        widths = row_steps(row, width)
        looped = row.along != ONCE
        pause = clock.timing.loop_iteration_ns if looped else 0.0
        busy: dict[str, float] = {}
        length = steps.iteration_length(len(widths))
        for count, times in Counter(widths).items():
            length += times * steps.length(count)
            for resource, ns in busy_of(steps.stages(count)).items():
                busy[resource] = busy.get(resource, 0.0) + row.iterations * times * ns
        iteration = chain_ns(widths, steps.stages) + pause
        first = chain_ns(widths, steps.stages, {SCALAR: table} if table else {}) + pause
        ns = first + (row.iterations - 1) * iteration
        total += LaunchPrice(ns, length, int(looped), 0, tuple(busy.items()))
        table = 0.0
    return total
