"""What a step of a Winograd kernel's pipeline costs, as nkisim's clocks take it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from nkisim.machine import Machine
from nkisim.timing.costs import Cost, Transfer
from nkisim.timing.costs.gpsimd_engine import gpsimd_cost
from nkisim.timing.costs.scalar_engine import scalar_cost
from nkisim.timing.costs.vector_engine import vector_cost
from trnconv.algorithms.dma import descriptor_ns, issue_ns
from trnconv.algorithms.winograd.steady_state import TransferWork


class StepCosts:
    """Costs of steps; equal ones are worked out once."""

    def __init__(self, machine: Machine, *, in_loop: bool) -> None:
        self._machine = machine
        self._timing = machine.timing
        self._port = bool(machine.timing.psum_port_shared)
        self._in_loop = in_loop
        self.gpsimd = cache(self._gpsimd)
        self.vector = cache(self._vector)
        self.scalar = cache(self._scalar)
        self.product = cache(self._product)
        self.sums = cache(self._matmuls)
        self.transfer = cache(self._transfer)

    def _gpsimd(self, elems: int) -> Cost:
        """A copy, a multiplication or zeros."""
        return gpsimd_cost(self._machine, elems * self._timing.gpsimd_cycles_per_elem)

    def _vector(self, cycles: float, *, psum: bool) -> Cost:
        """An instruction that streams for so long."""
        return replace(vector_cost(self._machine, cycles), psum=psum and self._port)

    def _scalar(self, cycles: float) -> Cost:
        """The same on the Scalar engine, from PSUM."""
        return replace(scalar_cost(self._machine, cycles), psum=self._port)

    def _product(self, matmuls: float, columns: int, array_share: float) -> Cost:
        """A share of the matmuls of a product, on a share of the array."""
        return replace(self._matmuls(matmuls, columns), array_share=array_share)

    def _matmuls(self, count: float, columns: int) -> Cost:
        """So many matmuls one after the other, each of so many columns, on all of the array.

        Those that sum up a step of squares are.
        """
        timing = self._timing
        ns = 1 / timing.pe_columns_per_ns
        each = max(columns, timing.pe_min_cycles) + timing.pe_gap_cycles
        busy = (count * each - timing.pe_gap_cycles) * ns
        latency = timing.pe_latency_cycles * ns
        return Cost(busy, busy + latency, gap_ns=timing.pe_gap_cycles * ns)

    def _transfer(self, moved: TransferWork, direction: str) -> Cost:
        """A DMA."""
        timing = self._timing
        issue = issue_ns(timing, looped=self._in_loop)
        data = Transfer(
            direction=direction,
            descriptors=moved.descriptors,
            ns_each=descriptor_ns(timing, moved.bytes_each, looped=self._in_loop),
            engines=min(timing.dma_engines, moved.descriptors),
            hbm_bytes=int(moved.descriptors * moved.bytes_each),
            start_ns=timing.dma_start_ns,
            done_ns=timing.dma_done_ns,
        )
        return Cost(issue, issue, transfer=data)
