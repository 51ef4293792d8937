"""The 16 DMA engines behind in-order queues, one per direction."""

from __future__ import annotations

from nkisim.machine import Machine
from nkisim.timing.costs import Cost, Transfer
from nkisim.timing.engines import Placed
from nkisim.timing.shared_limit import SharedLimit

_ONE_QUEUE = "all directions"


class DmaQueue:
    """An in-order queue of transfers: when it can issue, and when its data path is free."""

    __slots__ = ("data_free", "issue_free")

    def __init__(self) -> None:
        self.issue_free = 0.0
        self.data_free = 0.0


class DmaEngines:
    """16 DMA engines behind in-order queues, one per direction (or one in all, read that way).

    A transfer waits for the one before it in its queue. The queues share who issues transfers, the
    data path, and HBM with everybody else who uses it: `hbm` may be that of two cores.
    """

    def __init__(self, machine: Machine, hbm: SharedLimit, core: int) -> None:
        self._timing = machine.timing
        self._queues: dict[str, DmaQueue] = {}
        self._core = core
        self._issue = SharedLimit()
        self._data = SharedLimit()
        self._hbm = hbm
        self.busy = 0.0  # data movement, in ns of all engines together
        self.issue_busy = 0.0
        self.hbm_bytes = 0

    def lane(self, transfer: Transfer) -> str:
        """The queue a transfer goes to, by name."""
        return transfer.direction if self._timing.dma_queue_per_direction else _ONE_QUEUE

    def queue(self, transfer: Transfer) -> DmaQueue:
        """The queue a transfer goes to."""
        name = self.lane(transfer)
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = DmaQueue()
        return queue

    def place(self, cost: Cost, ready: float) -> Placed:
        """Issue and carry out a transfer."""
        transfer = cost.transfer
        assert transfer is not None, "DMA costs hold a transfer"
        queue = self.queue(transfer)
        start = max(ready, queue.issue_free)
        share = cost.busy_ns / self._timing.dma_issue_queues
        issued = self._issue.take(transfer.direction, start, share)
        queue.issue_free = max(start + cost.busy_ns, issued)
        self.issue_busy += cost.busy_ns
        finish = self._move(queue, transfer, queue.issue_free + transfer.start_ns)
        self.hbm_bytes += transfer.hbm_bytes
        done = finish + transfer.done_ns
        return Placed(start, finish, done, done)

    def _move(self, queue: DmaQueue, transfer: Transfer, ready: float) -> float:
        share = transfer.descriptors * transfer.ns_each / self._timing.dma_engines
        alone = -(-transfer.descriptors // transfer.engines) * transfer.ns_each
        hbm = transfer.hbm_bytes / self._timing.hbm_bytes_per_ns
        begin = max(ready, queue.data_free)
        moved = self._data.take(transfer.direction, begin, share)
        if hbm:
            moved = max(moved, self._hbm.take((self._core, transfer.direction), begin, hbm))
        queue.data_free = max(begin + share, begin + hbm, moved)
        self.busy += share
        return max(begin + alone, queue.data_free)

    def drain(self, when: float) -> None:
        """Every transfer has ended at a time."""
        self._issue.drained(when)
        self._data.drained(when)

    def totals(self) -> list[float]:
        """What an iteration of a loop adds to."""
        return [self.hbm_bytes, self.busy, self.issue_busy]

    def add(self, gains: list[float]) -> None:
        """Add to the totals, in their order."""
        self.hbm_bytes += int(gains[0])
        self.busy += gains[1]
        self.issue_busy += gains[2]
