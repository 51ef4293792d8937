"""What both cores of a launch did, in the order in which nkisim ran it.

A trace holds the body of a loop once; this log holds every iteration that was run, because an order
between two cores may depend on it. It is kept for launches on two cores only.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nkisim.memory.footprint import Runs, View, joined, runs_of, view_at, views_meet
from nkisim.memory.layout import MemoryRegion
from nkisim.tensors.registers import RunTimeValue
from nkisim.tensors.tensor import NkiTensor

if TYPE_CHECKING:
    from types import FrameType

    from nkisim.memory.layout import Layout
    from nkisim.memory.storage import Storage
    from nkisim.trace import Access, Instruction, Loop

Arguments = tuple[tuple[str, Any], ...]

_INSTRUCTIONS = "nkisim.isa"
BARRIER = "core_barrier"


class Touch(NamedTuple):
    """One operand of one event: the memory it means, and which bytes of it."""

    storage: Storage  # of shared HBM the same object for both cores
    access: Access
    loop: Loop | None = None  # that the access steps with, in a run that enters the body once
    rows: tuple[tuple[Layout, int], ...] | None = None  # of a gather whose row numbers are known
    dynamic: bool = False  # a run-time offset takes part in the address
    known: bool = True  # its place; that of a gather is data, which a shape-only run has not

    @property
    def trips(self) -> int:
        """Iterations the touch stands for: those of its loop, unless every iteration was run."""
        loop = self.loop
        return 1 if loop is None or loop.meets else loop.trips or 1

    @property
    def shared(self) -> bool:
        """Whether both cores can reach it."""
        return self.storage.allocation.region is MemoryRegion.shared_hbm

    def place(self) -> tuple[Any, ...]:
        """Where: equal for equal places of one storage."""
        access, trips = self.access, self.trips
        step = access.step if trips > 1 else 0
        return (access.layout, access.offset, step, trips, self.rows, self.known)

    def runs(self) -> Runs:
        """The bytes of an access to HBM, from the first byte of the storage on."""
        if self.rows is not None:
            return _runs_of_rows(self.rows)
        access, trips = self.access, self.trips
        layout = access.layout
        runs = runs_of(layout, access.step if trips > 1 else 0, trips)
        return runs.moved(access.offset * layout.itemsize_bytes)

    def meets(self, other: Touch) -> bool:
        """Whether two touches of one storage have a byte in common.

        Of an on-chip access with a run-time offset a compiler knows the tensor, and no more.
        """
        layout = self.access.layout
        if layout.on_chip:
            return self.dynamic or other.dynamic or views_meet(_view(self), _view(other))
        return not (self.known and other.known) or self.runs().meets(other.runs())

    def __str__(self) -> str:
        low, high = self.access.byte_interval
        return f"bytes {low}..{high - 1}"


def _view(touch: Touch) -> View:
    access = touch.access
    return view_at(access.layout, access.offset, access.allocation.bytes_per_partition)


@functools.lru_cache(maxsize=256)
def _runs_of_rows(rows: tuple[tuple[Layout, int], ...]) -> Runs:
    row_runs = [runs_of(layout).moved(at * layout.itemsize_bytes) for layout, at in rows]
    none = np.zeros(0, np.int64)
    starts = np.concatenate([none, *(runs.starts for runs in row_runs)])
    return joined(starts, np.concatenate([none, *(runs.ends for runs in row_runs)]))


class Event:
    """One executed instruction of one core. `meeting` numbers the meeting it takes part in."""

    __slots__ = ("arguments", "core", "instruction", "meeting", "number", "reads", "writes")

    def __init__(
        self,
        number: int,
        core: int,
        instruction: Instruction,
        reads: tuple[Touch, ...],
        writes: tuple[Touch, ...],
        arguments: Arguments,
    ) -> None:
        self.number = number
        self.core = core
        self.instruction = instruction
        self.reads = reads
        self.writes = writes
        self.arguments = arguments
        self.meeting = -1

    @property
    def copies_onto_itself(self) -> bool:
        """A copy of a view onto itself: kernels use it as a fence, no value changes."""
        if self.instruction.op != "dma_copy":
            return False
        source, target = self.reads[0], self.writes[0]
        return source.storage is target.storage and source.place() == target.place()

    def __str__(self) -> str:
        return self.instruction.label


class AccessLog:
    """The events of both cores."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._last: list[Event | None] = [None, None]

    def add(
        self,
        core: int,
        instruction: Instruction,
        reads: tuple[Touch, ...],
        writes: tuple[Touch, ...],
    ) -> None:
        """Note an instruction together with the arguments it was called with."""
        arguments = arguments_of_call(sys._getframe(1))  # noqa: SLF001 (no other way to the call)
        event = Event(len(self.events), core, instruction, reads, writes, arguments)
        self.events.append(event)
        self._last[core] = event

    def meet(self, core: int, meeting: int) -> None:
        """The last event of a core is its part in a meeting."""
        event = self._last[core]
        if event is not None:
            event.meeting = meeting

    def of_core(self, core: int) -> list[Event]:
        """The events of one core, in its program order."""
        return [event for event in self.events if event.core == core]


def arguments_of_call(frame: FrameType | None) -> Arguments:
    """Names and values of what is not a tensor in the call of the instruction that `frame` is in.

    Numbers, operators and lists do not all enter the trace, yet they decide about values. They are
    taken where the call has them: in the outermost function of the instruction set around `frame`.
    """
    outermost = None
    while frame is not None and frame.f_globals.get("__name__", "").startswith("nkisim."):
        if frame.f_globals["__name__"].startswith(_INSTRUCTIONS):
            outermost = frame
        elif outermost is not None:
            break
        frame = frame.f_back
    if outermost is None:
        return ()
    code, values = outermost.f_code, outermost.f_locals
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return tuple([(name, _frozen(values[name])) for name in names if name in values])


def _frozen(value: Any) -> Any:
    """A hashable stand-in that is equal for equal values; tensors and registers are named only."""
    if isinstance(value, NkiTensor):
        return NkiTensor
    if isinstance(value, RunTimeValue):
        return RunTimeValue
    if isinstance(value, (list, tuple)):
        return tuple([_frozen(item) for item in value])
    if isinstance(value, float):
        return value.hex()  # NaN equals itself, and 0.0 is not -0.0
    if isinstance(value, np.ndarray):
        return (value.shape, value.dtype.str, value.tobytes())
    return repr(value) if isinstance(value, (dict, set)) else value
