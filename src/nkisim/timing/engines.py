"""The compute engines as clocks: when an instruction that is ready starts, what it leaves behind.

Service order is fixed (program order per engine), so every time here is a sum, a maximum or a
minimum of earlier times: a slower constant can never make anything earlier. There are three
exceptions. The warm-up of the Tensor engine looks at idle time: a slower producer may spare it a
restart, or cost it one. Its rate follows how much of the array works: a slower producer may bring
two tiles together. And a reordering window may come upon a better order by being late.

At the end of an iteration of a hardware loop everything has drained. What an engine then still
remembers is its `condition`; if an iteration starts and ends in the same one, the next iteration
takes as long.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from nkisim.machine import Machine
from nkisim.timing.costs import CELLS, Cost
from nkisim.timing.shared_limit import SharedLimit


class Placed(NamedTuple):
    """Times of one instruction in ns. `released`: its inputs may be overwritten."""

    start: float
    busy_end: float
    released: float
    visible: float


class ComputeEngine:
    """Vector, GpSimd and Sync engines: one instruction after the other.

    `psum` is a port to PSUM that it shares with another engine, if it does.
    """

    def __init__(self, psum: SharedLimit | None = None) -> None:
        self.free = 0.0
        self.busy = 0.0
        self._psum = psum

    def place(self, cost: Cost, ready: float) -> Placed:
        """Run an instruction."""
        start = max(ready, self.free)
        if cost.psum and self._psum is not None:
            start = max(start, self._psum.take(id(self), start, cost.busy_ns) - cost.busy_ns)
        self.free = end = start + cost.busy_ns
        self.busy += cost.busy_ns
        return Placed(start, end, end, start + cost.latency_ns)

    def drain(self, when: float) -> None:
        """It has ended everything at a time, and starts nothing earlier."""
        self.free = max(self.free, when)

    def postpone(self, shift_ns: float) -> None:
        """Let time pass in which it does what it does in any other iteration."""
        self.free += shift_ns

    def condition(self, _now: float) -> Hashable:
        """What decides how the next instruction runs, besides that everything has drained."""
        return None


class ScalarEngine(ComputeEngine):
    """The Scalar engine, which loads a function table when the function changes.

    The table is fetched as soon as the engine is free, whether or not the data is there.
    """

    def __init__(self, table_load_ns: float, psum: SharedLimit | None = None) -> None:
        super().__init__(psum)
        self._table: str | None = None
        self._table_load_ns = table_load_ns

    def place(self, cost: Cost, ready: float) -> Placed:
        """Run an instruction, after its table is there."""
        if cost.table is not None and cost.table != self._table:
            self._table = cost.table
            self.free += self._table_load_ns
            self.busy += self._table_load_ns
        return super().place(cost, ready)

    def condition(self, _now: float) -> Hashable:
        """The table that is loaded."""
        return self._table


class TensorEngine(ComputeEngine):
    """The PE array: weight loads hide behind the matmul before; tiles run side by side.

    Matmuls are reported done in program order, whichever tile ends first. The clock follows
    activity: it is slow until the array has worked for a while, and slow for matmuls that use a
    small part of the array, which do not warm it either.
    """

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        timing = machine.timing
        self._cold_rate = timing.pe_cold_rate
        self._warm_ns = timing.pe_warm_ns
        self._cold_idle_ns = timing.pe_cold_idle_ns
        self._rate = timing.pe_rate
        self._issue_ns = timing.pe_min_cycles / timing.pe_columns_per_ns
        self._last_start = -self._issue_ns
        self._slot_free = 0.0  # the array has taken the weights loaded last: more may follow
        self._whole = 0.0  # end of the last instruction that took the whole array
        self._cells: dict[int, float] = {}  # ends of tiled ones, by part of the array
        self._active = 0.0  # end of the last work that keeps the array warm
        self._warm_at = timing.pe_warm_ns if timing.pe_cold_rate < 1 else 0.0

    def place(self, cost: Cost, ready: float) -> Placed:
        """Run a matmul or a transpose."""
        array_free = self._array_free(cost.cells)
        start = max(
            ready,
            array_free + cost.gap_ns if array_free else 0.0,
            self._slot_free + cost.weight_load_ns,
            self._last_start + min(self._issue_ns, cost.busy_ns),
        )
        stop = start + self._stretched(cost, start)
        if cost.cells:
            self._cells.update(dict.fromkeys(cost.cells, stop))
        else:
            self._whole = stop
        self.busy += max(0.0, stop - max(start, self.free))
        self.free = max(self.free, stop)
        self._last_start = start
        self._slot_free = start + cost.weight_slot_ns
        return Placed(start, stop, self.free, self.free + cost.latency_ns - cost.busy_ns)

    def _array_free(self, cells: tuple[int, ...]) -> float:
        """When a part of the array (all of it: no cells) is done."""
        if not cells:
            return self.free
        return max(self._whole, *(self._cells.get(cell, 0.0) for cell in cells))

    def _stretched(self, cost: Cost, start: float) -> float:
        """How long an instruction takes that may start at a time."""
        rate = self._small_rate(cost, start)
        if rate < 1:
            return cost.busy_ns / rate
        stretched = self._warming(cost.busy_ns, start)
        self._active = max(self._active, start + stretched)
        return stretched

    def _small_rate(self, cost: Cost, start: float) -> float:
        """The rate of an instruction by the part of the array that is at work with it."""
        share = cost.array_share
        if cost.cells:
            others = (end for cell, end in self._cells.items() if cell not in cost.cells)
            share += sum(end > start for end in others) / CELLS
        return self._rate(share)

    def _warming(self, work_ns: float, start: float) -> float:
        """How long work takes; until it is warm, the array runs at a reduced rate.

        It gets warm by working, so short idle times only put that off; a long one starts it over.
        """
        if self._cold_rate >= 1:
            return work_ns
        idle = start - self._active
        if idle > self._cold_idle_ns:
            self._warm_at = start + self._warm_ns
        elif idle > 0 and self._warm_at > self._active:
            self._warm_at += idle
        cold_ns = min(max(0.0, self._warm_at - start), work_ns / self._cold_rate)
        return cold_ns + work_ns - cold_ns * self._cold_rate

    def drain(self, when: float) -> None:
        """It has ended everything at a time, and starts nothing earlier, no weight load either."""
        super().drain(when)
        self._slot_free = max(self._slot_free, when)

    def postpone(self, shift_ns: float) -> None:
        """Let time pass in which it does what it does in any other iteration."""
        super().postpone(shift_ns)
        self._active += shift_ns
        self._warm_at += shift_ns

    def condition(self, now: float) -> Hashable:
        """How long it has been idle, and how far from warm it is, in ns; None if it is cold."""
        if self._cold_rate >= 1 or now - self._active >= self._cold_idle_ns:
            return None
        return round(now - self._active, 3), round(max(0.0, self._warm_at - self._active), 3)
