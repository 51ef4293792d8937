"""The compute engines as clocks: when an instruction that is ready starts, what it leaves behind.

Service order is fixed (program order per engine), so every time here is a sum, a maximum or a
minimum of earlier times: a slower constant can never make anything earlier. There are two
exceptions. The warm-up of the Tensor engine looks at idle time: a slower producer may spare it a
restart, or cost it one. And a reordering window may come upon a better order by being late.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from nkisim.machine import Machine
from nkisim.timing.costs import Cost


class Placed(NamedTuple):
    """Times of one instruction in ns. `released`: its inputs may be overwritten."""

    start: float
    busy_end: float
    released: float
    visible: float


class ComputeEngine:
    """Vector, GpSimd and Sync engines: one instruction after the other."""

    def __init__(self) -> None:
        self.free = 0.0
        self.busy = 0.0

    def place(self, cost: Cost, ready: float) -> Placed:
        """Run an instruction."""
        start = max(ready, self.free)
        self.free = end = start + cost.busy_ns
        self.busy += cost.busy_ns
        return Placed(start, end, end, start + cost.latency_ns)

    def meters(self) -> list[float]:
        """Every number that grows with time; in a steady loop each gains the same per period."""
        return [self.free, self.busy]

    def advance(self, gains: Sequence[float]) -> None:
        """Add to the meters, in their order."""
        self.free += gains[0]
        self.busy += gains[1]

    def condition(self) -> Hashable:
        """What else decides how the next instruction runs; the same at both ends of a period."""
        return None


class ScalarEngine(ComputeEngine):
    """The Scalar engine, which loads a function table when the function changes.

    The table is fetched as soon as the engine is free, whether or not the data is there.
    """

    def __init__(self, table_load_ns: float) -> None:
        super().__init__()
        self._table: str | None = None
        self._table_load_ns = table_load_ns

    def place(self, cost: Cost, ready: float) -> Placed:
        """Run an instruction, after its table is there."""
        if cost.table is not None and cost.table != self._table:
            self._table = cost.table
            self.free += self._table_load_ns
            self.busy += self._table_load_ns
        return super().place(cost, ready)

    def condition(self) -> Hashable:
        """The table that is loaded."""
        return self._table


class TensorEngine(ComputeEngine):
    """The PE array: weight loads hide behind the matmul before; tiles run side by side.

    Matmuls are reported done in program order, whichever tile ends first.
    """

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        timing = machine.timing
        self._cold_rate = timing.pe_cold_rate
        self._warm_ns = timing.pe_warm_ns
        self._cold_idle_ns = timing.pe_cold_idle_ns
        self._issue_ns = timing.pe_min_cycles / timing.pe_ghz
        self._last_start = -self._issue_ns
        self._slot_free = 0.0  # the array has taken the weights loaded last: more may follow
        self._whole = 0.0  # end of the last instruction that took the whole array
        self._cells: dict[int, float] = {}  # ends of tiled ones, by part of the array
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
        stop = start + self._stretched(cost.busy_ns, start)
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

    def _stretched(self, work_ns: float, start: float) -> float:
        """How long work takes; until it is warm, the array runs at a reduced rate.

        It gets warm by working, so short idle times only put that off; a long one starts it over.
        """
        if self._cold_rate >= 1:
            return work_ns
        idle = start - self.free
        if idle > self._cold_idle_ns:
            self._warm_at = start + self._warm_ns
        elif idle > 0 and self._warm_at > self.free:
            self._warm_at += idle
        cold_ns = min(max(0.0, self._warm_at - start), work_ns / self._cold_rate)
        return cold_ns + work_ns - cold_ns * self._cold_rate

    def meters(self) -> list[float]:
        """Clocks of the array, of its parts and of its weight slot."""
        clocks = [self._last_start, self._slot_free, self._whole, self._warm_at]
        return [*super().meters(), *clocks, *self._cells.values()]

    def advance(self, gains: Sequence[float]) -> None:
        """Add to the meters, in their order."""
        super().advance(gains)
        self._last_start += gains[2]
        self._slot_free += gains[3]
        self._whole += gains[4]
        self._warm_at += gains[5]
        for cell, gain in zip(self._cells, gains[6:], strict=True):
            self._cells[cell] += gain

    def condition(self) -> Hashable:
        """How far from warm it is, in ns."""
        return round(max(0.0, self._warm_at - self.free), 3)
