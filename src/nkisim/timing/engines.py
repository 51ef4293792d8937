"""The engines as clocks: when an instruction that is ready may start, and what it leaves behind.

Service order is fixed (program order per engine), so every time here is a sum or a maximum of
earlier times: a slower constant can never make anything earlier. The one exception is the warm-up
of the Tensor engine, which looks at idle time.
"""

from __future__ import annotations

from dataclasses import dataclass

from nkisim.layout import ON_CHIP
from nkisim.machine import Machine
from nkisim.timing.costs import Cost, Transfer
from nkisim.trace import Instruction

_QUARTERS = 4


@dataclass(slots=True)
class Placed:
    """Times of one instruction in ns. `released`: its inputs may be overwritten."""

    start: float
    busy_end: float
    released: float
    visible: float


class ComputeEngine:
    """Vector and GpSimd engines: one instruction after the other."""

    def __init__(self) -> None:
        self.free = 0.0
        self.busy = 0.0

    def earliest(self, ready: float) -> float:
        """When an instruction that is ready at `ready` would start."""
        return max(ready, self.free)

    def place(self, cost: Cost, ready: float) -> Placed:
        """Run an instruction."""
        start = max(ready, self.free)
        self.free = start + cost.busy_ns
        self.busy += cost.busy_ns
        return Placed(start, self.free, self.free, start + cost.latency_ns)

    def skip(self, ns: float) -> None:
        """Let time pass (loop costs, extrapolated iterations)."""
        self.free += ns


class ScalarEngine(ComputeEngine):
    """The Scalar engine, which loads a function table when the function changes."""

    def __init__(self, table_load_ns: float) -> None:
        super().__init__()
        self._table: str | None = None
        self._table_load_ns = table_load_ns

    def place(self, cost: Cost, ready: float) -> Placed:
        """Run an instruction, after its table is there."""
        load = 0.0
        if cost.table is not None and cost.table != self._table:
            load = self._table_load_ns
            self._table = cost.table
        start = max(ready, self.free + load)
        self.free = start + cost.busy_ns
        self.busy += cost.busy_ns + load
        return Placed(start, self.free, self.free, start + cost.latency_ns)


class TensorEngine(ComputeEngine):
    """The PE array: weight loads hide behind the matmul before; tiles run side by side."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        timing = machine.timing
        self._cold_rate = timing.pe_cold_rate
        self._warm_ns = timing.pe_warm_ns
        self._cold_idle_ns = timing.pe_cold_idle_ns
        self._issue_ns = timing.pe_min_cycles / timing.pe_ghz
        self._last_start = float("-inf")
        self._quarters = [0.0] * _QUARTERS
        self._cold_left = timing.pe_warm_ns if timing.pe_cold_rate < 1 else 0.0

    def place(self, cost: Cost, ready: float) -> Placed:
        """Run a matmul or a transpose."""
        first, end = cost.tiles if cost.tiles != (0, 0) else (0, _QUARTERS)
        array_free = max(self._quarters[first:end])
        issue = self._last_start + min(self._issue_ns, cost.busy_ns)
        loaded = self._last_start + cost.weight_load_ns
        start = max(ready, array_free + cost.gap_ns if array_free else 0.0, loaded, issue)
        busy = self._with_warm_up(cost.busy_ns, start - self.free)
        stop = start + busy
        self._quarters[first:end] = [stop] * (end - first)
        self.busy += stop - max(start, self.free)
        self.free = max(self.free, stop)
        self._last_start = start
        return Placed(start, stop, stop, stop + cost.latency_ns - cost.busy_ns)

    def _with_warm_up(self, work_ns: float, idle_ns: float) -> float:
        """Stretch work by the reduced clock; a long idle time makes the engine cold again."""
        if self._cold_rate >= 1:
            return work_ns
        if idle_ns > self._cold_idle_ns:
            self._cold_left = self._warm_ns
        if self._cold_left <= 0:
            return work_ns
        slow = min(self._cold_left, work_ns / self._cold_rate)
        self._cold_left -= slow
        return slow + work_ns - slow * self._cold_rate

    def skip(self, ns: float) -> None:
        """Let time pass."""
        self.free += ns
        self._last_start += ns
        self._quarters = [free + ns for free in self._quarters]


class DmaQueue:
    """One direction of DMA traffic: an in-order issue queue and its share of the data path."""

    def __init__(self) -> None:
        self.issue_free = 0.0
        self.data_free = 0.0

    def skip(self, ns: float) -> None:
        """Let time pass."""
        self.issue_free += ns
        self.data_free += ns


class DmaEngines:
    """16 DMA engines behind in-order queues, one per direction.

    A transfer waits for the one before it in its direction. On top, all transfers together can be
    issued no faster than the descriptor generators allow and move no faster than the 16 engines.
    """

    def __init__(self, machine: Machine) -> None:
        timing = machine.timing
        self._timing = timing
        self._queues: dict[tuple[bool, bool], DmaQueue] = {}
        self._issued = 0.0  # earliest end of all issue work so far
        self._moved = 0.0  # earliest end of all data movement so far
        self.busy = 0.0  # data movement, in ns of all 16 engines
        self.issue_busy = 0.0
        self.free = 0.0
        self.hbm_bytes = 0

    def queue_of(self, instruction: Instruction) -> DmaQueue:
        """The queue of a transfer's direction."""
        to_chip = instruction.writes[0].layout.region in ON_CHIP
        from_chip = instruction.reads[0].layout.region in ON_CHIP
        return self._queues.setdefault((from_chip, to_chip), DmaQueue())

    def place(self, instruction: Instruction, cost: Cost, ready: float) -> Placed:
        """Issue and carry out a transfer."""
        transfer = cost.transfer
        assert transfer is not None, "DMA costs hold a transfer"
        queue = self.queue_of(instruction)
        start = max(ready, queue.issue_free)
        self._issued += cost.busy_ns / self._timing.dma_issue_queues
        queue.issue_free = max(start + cost.busy_ns, self._issued)
        self.issue_busy += cost.busy_ns
        finish = self._move(queue, transfer, queue.issue_free + self._timing.dma_start_ns)
        self.free = max(self.free, finish)
        sides = (instruction.writes[0].layout, instruction.reads[0].layout)
        self.hbm_bytes += transfer.bytes_total * sum(not side.on_chip for side in sides)
        return Placed(start, finish, finish, finish + self._timing.dma_done_ns)

    def _move(self, queue: DmaQueue, transfer: Transfer, ready: float) -> float:
        share = transfer.descriptors * transfer.ns_each / self._timing.dma_engines
        alone = -(-transfer.descriptors // transfer.engines) * transfer.ns_each
        begin = max(ready, queue.data_free)
        self._moved += share
        queue.data_free = max(begin + share, self._moved)
        self.busy += share
        return max(begin + alone, queue.data_free)

    def skip(self, ns: float) -> None:
        """Let time pass."""
        for queue in self._queues.values():
            queue.skip(ns)
        self._issued += ns
        self._moved += ns
        self.free += ns
