"""The 16 DMA engines behind in-order queues, one per direction."""

from __future__ import annotations

from collections.abc import Sequence

from nkisim.machine import Machine
from nkisim.timing.costs import Cost, Transfer
from nkisim.timing.engines import Placed


class DmaQueue:
    """One direction of DMA traffic: an in-order issue queue and its share of the data path."""

    __slots__ = ("data_free", "issue_free")

    def __init__(self) -> None:
        self.issue_free = 0.0
        self.data_free = 0.0


class DmaEngines:
    """16 DMA engines behind in-order queues, one per direction.

    A transfer waits for the one before it in its direction. On top, all transfers together take at
    least the time that issuing them, moving them and their HBM traffic take if nothing ever idles,
    counted from the start of the kernel: a bound on the whole, so that no direction waits for
    another one's waits.
    """

    def __init__(self, machine: Machine) -> None:
        self._timing = machine.timing
        self._queues: dict[str, DmaQueue] = {}
        self._issued = 0.0  # earliest end of all issue work so far
        self._moved = 0.0  # earliest end of all data movement so far
        self._hbm = 0.0  # earliest end of all HBM traffic so far
        self.busy = 0.0  # data movement, in ns of all engines together
        self.issue_busy = 0.0
        self.free = 0.0
        self.hbm_bytes = 0

    def queue(self, direction: str) -> DmaQueue:
        """The queue of a direction."""
        queue = self._queues.get(direction)
        if queue is None:
            queue = self._queues[direction] = DmaQueue()
        return queue

    def place(self, cost: Cost, ready: float) -> Placed:
        """Issue and carry out a transfer."""
        transfer = cost.transfer
        assert transfer is not None, "DMA costs hold a transfer"
        queue = self.queue(transfer.direction)
        start = max(ready, queue.issue_free)
        self._issued += cost.busy_ns / self._timing.dma_issue_queues
        queue.issue_free = max(start + cost.busy_ns, self._issued)
        self.issue_busy += cost.busy_ns
        finish = self._move(queue, transfer, queue.issue_free + transfer.start_ns)
        self.free = max(self.free, finish)
        self.hbm_bytes += transfer.hbm_bytes
        done = finish + transfer.done_ns
        return Placed(start, finish, done, done)

    def _move(self, queue: DmaQueue, transfer: Transfer, ready: float) -> float:
        share = transfer.descriptors * transfer.ns_each / self._timing.dma_engines
        alone = -(-transfer.descriptors // transfer.engines) * transfer.ns_each
        hbm = transfer.hbm_bytes / self._timing.hbm_bytes_per_ns
        begin = max(ready, queue.data_free)
        self._moved += share
        self._hbm += hbm
        queue.data_free = max(begin + share, begin + hbm, self._moved, self._hbm)
        self.busy += share
        return max(begin + alone, queue.data_free)

    def meters(self) -> list[float]:
        """Every number that grows with time; in a steady loop each gains the same per period."""
        totals = [self.hbm_bytes, self.busy, self.issue_busy, self.free]
        bounds = [self._issued, self._moved, self._hbm]
        clocks = [(queue.issue_free, queue.data_free) for queue in self._queues.values()]
        return [*totals, *bounds, *(clock for pair in clocks for clock in pair)]

    def advance(self, gains: Sequence[float]) -> None:
        """Add to the meters, in their order."""
        self.hbm_bytes += int(gains[0])
        self.busy += gains[1]
        self.issue_busy += gains[2]
        self.free += gains[3]
        self._issued += gains[4]
        self._moved += gains[5]
        self._hbm += gains[6]
        for number, queue in enumerate(self._queues.values()):
            queue.issue_free += gains[7 + 2 * number]
            queue.data_free += gains[8 + 2 * number]
