"""What a step of a fast kernel's pipeline costs, as nkisim's clocks take it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace

from nkisim.machine import Machine
from nkisim.timing.costs import Cost, Transfer
from nkisim.timing.costs.gpsimd_engine import gpsimd_cost
from nkisim.timing.costs.scalar_engine import scalar_cost
from nkisim.timing.costs.vector_engine import vector_cost
from trnconv.forms.dma import descriptor_ns, issue_ns
from trnconv.forms.minimal.score import OutWork, TransferWork


class StepCosts:
    """Costs of steps; equal ones are worked out once."""

    def __init__(self, machine: Machine, *, in_loop: bool) -> None:
        self._machine = machine
        self._timing = machine.timing
        self._port = bool(machine.timing.psum_port_shared)
        self._in_loop = in_loop
        self._known: dict[Hashable, Cost] = {}

    def gpsimd(self, elems: int) -> Cost:
        """A copy, a multiplication or zeros."""
        cycles = elems * self._timing.gpsimd_cycles_per_elem
        return self._once(("gpsimd", elems), lambda: gpsimd_cost(self._machine, cycles))

    def vector(self, cycles: float, *, psum: bool) -> Cost:
        """An instruction that streams for so long."""
        port = psum and self._port
        return self._once(
            ("vector", cycles, psum), lambda: replace(vector_cost(self._machine, cycles), psum=port)
        )

    def scalar(self, cycles: float) -> Cost:
        """The same on the Scalar engine, from PSUM."""
        return self._once(
            ("scalar", cycles), lambda: replace(scalar_cost(self._machine, cycles), psum=self._port)
        )

    def product(self, tile: OutWork, elems: int, share: float) -> Cost:
        """A share of the matmuls of a product."""
        return self._once(("tensor", tile, elems, share), lambda: self._product(tile, elems, share))

    def sums(self, matmuls: int, columns: int) -> Cost:
        """Matmuls with ones that sum up a step of squares."""
        return self._once(("sums", matmuls, columns), lambda: self._matmuls(matmuls, columns))

    def transfer(self, moved: TransferWork, direction: str) -> Cost:
        """A DMA."""
        return self._once((moved, direction), lambda: self._transfer(moved, direction))

    def _once(self, key: Hashable, work_out: Callable[[], Cost]) -> Cost:
        cost = self._known.get(key)
        if cost is None:
            cost = self._known[key] = work_out()
        return cost

    def _product(self, tile: OutWork, elems: int, share: float) -> Cost:
        return replace(self._matmuls(tile.matmuls * share, elems), array_share=tile.share)

    def _matmuls(self, count: float, columns: int) -> Cost:
        """So many matmuls one after the other, each of so many columns, on all of the array."""
        timing = self._timing
        ns = 1 / timing.pe_columns_per_ns
        each = max(columns, timing.pe_min_cycles) + timing.pe_gap_cycles
        busy = (count * each - timing.pe_gap_cycles) * ns
        latency = timing.pe_latency_cycles * ns
        return Cost(busy, busy + latency, gap_ns=timing.pe_gap_cycles * ns)

    def _transfer(self, moved: TransferWork, direction: str) -> Cost:
        timing = self._timing
        issue = issue_ns(timing, rolled=self._in_loop)
        data = Transfer(
            direction=direction,
            descriptors=moved.descriptors,
            ns_each=descriptor_ns(timing, moved.bytes_each, rolled=self._in_loop),
            engines=min(timing.dma_engines, moved.descriptors),
            hbm_bytes=int(moved.descriptors * moved.bytes_each),
            start_ns=timing.dma_start_ns,
            done_ns=timing.dma_done_ns,
        )
        return Cost(issue, issue, transfer=data)
