"""Where written values come from: two writes of one value are told without looking at values.

Two writes leave the same bytes if the same instruction, with the same arguments, wrote them to the
same place from operands of the same provenance. That is decided by what was run, never by values:
zeros, equal data and runs without data come out alike. The rule is what makes kernels that know
nothing of cores, and do everything twice when launched on two, acceptable.

Provenances are numbers; equal ones have equal numbers. What a tensor held before anything was
written to it counts as one provenance: an argument, or nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nkisim.memory.aliasing import Box, boxes_of_runs, boxes_of_view
from nkisim.memory.footprint import runs_of

if TYPE_CHECKING:
    from nkisim.memory.storage import Storage
    from nkisim.running.access_log import AccessLog, Event, Touch

Number = int

# Instructions whose result depends on what dst held.
KEEPING = frozenset(
    {
        "nc_matmul",
        "nc_matmul_mx",
        "dma_compute",
        "tensor_copy_predicated",
        "nc_stream_shuffle",
        "local_gather",
    }
)


class Provenance:
    """The provenance of every write in a log."""

    def __init__(self, log: AccessLog) -> None:
        self._numbers: dict[Any, Number] = {}
        self._contents: dict[Storage, _Contents] = {}
        self._registers = [0, 0]  # of each core, and the accumulators of its engines
        self._accumulators: dict[tuple[int, Any], Number] = {}
        self._sent: dict[int, Number] = {}
        self._writes: dict[tuple[int, int], Number] = {}
        for event in log.events:
            self._run(event)

    def of(self, event: Event, operand: int) -> Number:
        """The provenance of what an event wrote to its operand of this number."""
        return self._writes[event.number, operand]

    def _number(self, *what: Any) -> Number:
        return self._numbers.setdefault(what, len(self._numbers) + 1)

    def _run(self, event: Event) -> None:
        instruction, core = event.instruction, event.core
        if event.copies_onto_itself:
            self._keep(event)
            return
        touches = (*event.reads, *event.writes)
        inputs = [self._content(touch) for touch in event.reads]
        if instruction.op in KEEPING or _skips_rows(event):
            inputs += [self._content(touch) for touch in event.writes]
        state = self._registers[core] if any(touch.dynamic for touch in touches) else 0
        layouts = tuple([touch.access.layout for touch in touches])
        what = (instruction.op, instruction.engine, event.arguments, tuple(inputs), layouts, state)
        number = self._number(*what, self._exchange(event), self._accumulated(event, inputs))
        if not event.writes and event.meeting < 0:
            self._registers[core] = self._number("registers", self._registers[core], number)
        for operand, touch in enumerate(event.writes):
            written = self._number("operand", operand, number)
            self._writes[event.number, operand] = self._number("at", touch.place(), written)
            if event.meeting < 0 or not touch.shared:
                self._contents_of(touch).write(touch, written)

    def _keep(self, event: Event) -> None:
        touch = event.writes[0]
        self._writes[event.number, 0] = self._number("at", touch.place(), self._content(touch))

    def _exchange(self, event: Event) -> Any:
        """What a sendrecv brings is the other core's."""
        return (event.core, event.meeting) if event.meeting >= 0 else None

    def _accumulated(self, event: Event, inputs: list[Number]) -> Number:
        """The engine's accumulator registers as an instruction finds them."""
        command = dict(event.arguments).get("reduce_cmd")
        if command is None or command.name == "idle":
            return 0
        key = (event.core, event.instruction.engine)
        before = self._accumulators.get(key, 0)
        self._accumulators[key] = self._number(
            "accumulated", before, event.arguments, tuple(inputs)
        )
        return before

    def _contents_of(self, touch: Touch) -> _Contents:
        found = self._contents.get(touch.storage)
        if found is None:
            origin = self._number("origin", touch.storage if touch.shared else None)
            found = self._contents[touch.storage] = _Contents(origin)
        return found

    def _content(self, touch: Touch) -> Number:
        """The provenance of what a view holds."""
        return self._number("parts", self._contents_of(touch).parts(touch))


def _skips_rows(event: Event) -> bool:
    """Whether a copy leaves rows of dst as they are."""
    mode = dict(event.arguments).get("oob_mode")
    return mode is not None and mode.name == "skip"


class _Contents:
    """The writes that are still to be seen in one storage, the oldest first."""

    def __init__(self, origin: Number) -> None:
        self._origin = origin
        self._writes: dict[tuple[Any, ...], tuple[Touch, Number]] = {}

    def write(self, touch: Touch, number: Number) -> None:
        """A view was written."""
        place = touch.place()
        self._writes.pop(place, None)
        if _is_whole(touch):
            self._writes.clear()
        self._writes[place] = (touch, number)

    def parts(self, touch: Touch) -> tuple[Any, ...]:
        """What makes up a view: the writes to be seen in it, with their places relative to it."""
        layout, offset = touch.access.layout, touch.access.offset
        seen: list[tuple[Touch, Number]] = []
        origin: tuple[Any, ...] = ()
        hidden = _boxes(touch)  # what no write has been found for yet
        for written, number in reversed(self._writes.values()):
            if not touch.meets(written):
                continue
            boxes = _boxes(written)
            if not (hidden and boxes) or any(part.meets(two) for part in hidden for two in boxes):
                seen.append((written, number))
            for box in boxes:
                hidden = [part for whole in hidden for part in whole.minus(box)]
            if not hidden and _boxes(touch):
                break
        else:
            origin = (self._origin, offset)
        places = [(number, _moved(w.place(), offset)) for w, number in _in_one_order(seen)]
        return (layout, *places, *origin)


def _boxes(touch: Touch) -> list[Box]:
    """The bytes of a touch; none are known of a gather, or of on-chip places that move."""
    access, place = touch.access, touch.storage.allocation
    if not touch.known or (touch.dynamic and access.layout.on_chip):
        return []
    if not access.layout.on_chip:
        return boxes_of_runs(touch.runs(), 0, 1)
    whole = Box(0, place.partitions, 0, place.bytes_per_partition)
    return boxes_of_view(whole, access.layout, access.offset)


def _moved(place: tuple[Any, ...], by: int) -> tuple[Any, ...]:
    layout, offset, *rest = place
    return (layout, offset - by, *rest)


def _in_one_order(seen: list[tuple[Touch, Number]]) -> list[tuple[Touch, Number]]:
    """The newest first, and of writes that do not meet each other the lowest number first."""
    left, ordered = list(seen), []
    while left:
        free = [
            write
            for position, write in enumerate(left)
            if not any(write[0].meets(newer[0]) for newer in left[:position])
        ]
        first = min(free, key=lambda write: write[1])
        left.remove(first)
        ordered.append(first)
    return ordered


def _is_whole(touch: Touch) -> bool:
    """Whether a write leaves nothing of what the storage held before."""
    if not touch.known or touch.rows is not None or touch.dynamic:
        return False
    layout, place = touch.access.layout, touch.storage.allocation
    every_row = not layout.on_chip or layout.partitions == place.partitions
    return every_row and runs_of(layout).size_bytes == place.bytes_per_partition
