"""The price of an elementwise operation as a kernel of its own: loads, passes of an engine, stores.

There is no kernel: it is what an add, a clamp or a copy would take if nothing else took it over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from nkisim.machine import Machine
from trnconv.ask.ends import ITEM_BYTES
from trnconv.neighbours.chain import Stage, Stages
from trnconv.neighbours.price import VECTOR, LaunchPrice, Steps, clock_of, rows_price
from trnconv.neighbours.refusal import choice_reasons, machine_reasons, require
from trnconv.neighbours.sweep import Cut, sweeps

_WIDTH_IN_BANKS = 4  # as wide as the steps of norms
_TURN_INSTRUCTIONS = 4000
_SLOTS = 4


@dataclass(frozen=True)
class Pointwise:
    """An operation on `elements`: tensors read and written, and operators of the Vector engine.

    A copy has no operator: DMA moves it by way of SBUF.
    """

    elements: int
    reads: int = 1
    writes: int = 1
    dtype: str = "bfloat16"
    operators: int = 1

    def refuses(self, machine: Machine, cores: int = 1) -> str:
        """Why there is no price, in words; empty if there is one."""
        return next(self._reasons(machine, cores), "")

    def _reasons(self, machine: Machine, cores: int) -> Iterator[str]:
        if min(self.elements, self.reads, self.writes) < 1 or self.operators < 0:
            yield f"{self}: at least one element, read and written, and no fewer than 0 operators"
        yield from choice_reasons("dtype", self.dtype, tuple(ITEM_BYTES))
        yield from machine_reasons(machine, cores)

    def price(self, machine: Machine, cores: int = 1) -> LaunchPrice:
        """What it takes, in closed form. Modelled."""
        require(self, machine, cores)
        return _price(self, machine, cores)


@lru_cache(maxsize=4096)
def _price(problem: Pointwise, machine: Machine, cores: int) -> LaunchPrice:
    """Elements on all partitions, in steps; the core that ends last."""
    item, lines = ITEM_BYTES[problem.dtype], machine.partitions
    positions = -(-problem.elements // lines)
    clock = clock_of(machine, cores)
    length = problem.reads + problem.operators + problem.writes
    width = min(_WIDTH_IN_BANKS * machine.psum_bank_fp32_elems, positions)
    cycles = 2 if item == 4 and problem.reads > 1 else 1

    def stages(count: int) -> Stages:
        passes = problem.operators * clock.vector(cycles * count)
        latency = clock.vector_latency(cycles * count) if problem.operators else 0.0
        return (
            *clock.load(problem.reads * lines, count * item, problem.reads),
            Stage(VECTOR, passes, latency),
            *clock.store(problem.writes * lines, count * item, problem.writes, _SLOTS),
        )

    cut = Cut(width, max(1, _TURN_INSTRUCTIONS // length))
    steps = Steps(stages, lambda _: length)
    prices = [
        rows_price(rows, width, clock, steps) for rows in sweeps(1, positions, cut, machine, cores)
    ]
    moved = item * problem.elements * (problem.reads + problem.writes)
    return replace(max(prices, key=lambda price: price.ns), hbm_bytes=moved)
