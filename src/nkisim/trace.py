"""Trace: the instruction stream of one core, as data. The interpreter writes it, timing reads it.

Nothing here holds tensor data, and nothing here counts a cycle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nkisim.compiler_count import matmul_instructions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nkisim.enums import engine
    from nkisim.memory.allocation import Allocation
    from nkisim.memory.layout import Layout
    from nkisim.source_lines import CallSite, SourceLine

Options = tuple[tuple[str, Any], ...]

_MATMULS = ("nc_matmul", "nc_matmul_mx", "nc_transpose")


class Access:
    """One operand: which allocation, which elements of it.

    `offset` counts elements of the layout's dtype from the start of the allocation. Inside a
    dynamic loop it is the first iteration's, and every iteration adds `step` elements. `anywhere`
    says that only the device knows which elements: a gather, or an offset that is data.
    """

    __slots__ = ("allocation", "anywhere", "layout", "loop", "offset", "step")

    def __init__(
        self, allocation: Allocation, layout: Layout, offset: int, step: int = 0, loop: int = -1
    ) -> None:
        self.allocation = allocation
        self.layout = layout
        self.offset = offset
        self.step = step
        self.loop = loop
        self.anywhere = False

    @property
    def start_partition(self) -> int:
        """First physical partition of an on-chip access."""
        allocation, layout = self.allocation, self.layout
        pitch = allocation.bytes_per_partition // layout.itemsize_bytes
        return allocation.start_partition + (self.offset // pitch if layout.on_chip else 0)

    @property
    def byte_interval(self) -> tuple[int, int]:
        """[first, end) bytes touched inside the allocation (inside one partition on chip)."""
        layout = self.layout
        start = self.offset
        if layout.on_chip:
            start %= self.allocation.bytes_per_partition // layout.itemsize_bytes
        size = layout.itemsize_bytes
        return (start + layout.low) * size, (start + layout.high + 1) * size

    @property
    def bytes_total(self) -> int:
        """Bytes the access moves, all partitions together."""
        return self.layout.partitions * self.layout.elems * self.layout.itemsize_bytes

    def __repr__(self) -> str:
        return f"Access({self.allocation.name!r}+{self.offset} {self.layout})"

    def key(self) -> tuple[Any, ...]:
        """Everything that tells two accesses apart; equal for equal runs of one kernel."""
        offset = None if self.anywhere else self.offset
        return (self.allocation.name, offset, self.step, self.loop, self.layout)


class Instruction:
    """One executed NKI instruction.

    `index` is its place in program order; `after` are the indices of the instructions it was told
    to wait for; `options` are the arguments that matter for its cost; `site` is the line of the
    kernel that issued it, None if nobody noted it.
    """

    __slots__ = (
        *("after", "engine", "index", "loop", "name", "op", "options", "reads", "site", "writes"),
    )

    def __init__(
        self,
        index: int,
        op: str,
        where: engine,
        writes: tuple[Access, ...],
        reads: tuple[Access, ...],
        options: Options,
        name: str | None,
    ) -> None:
        self.index = index
        self.op = op
        self.engine = where
        self.writes = writes
        self.reads = reads
        self.options = options
        self.name = name
        self.after: tuple[int, ...] = ()
        self.loop = -1  # number of the innermost loop around it
        self.site: CallSite | None = None

    @property
    def place(self) -> SourceLine | None:
        """File and line of the kernel that issued it."""
        return None if self.site is None else self.site.place

    @property
    def label(self) -> str:
        """What messages call it: "dma_copy (instruction 3, first.py:12)"."""
        line = "" if self.site is None else f", {self.site.place.short}"
        return f"{self.op} (instruction {self.index}{line})"

    def option(self, name: str, default: Any = None) -> Any:
        """The value of a recorded option."""
        for key, value in self.options:
            if key == name:
                return value
        return default

    def same_program(self, other: Instruction) -> bool:
        """Whether a compiler would emit one instruction for both: all but the places is equal."""
        mine = [access.layout for access in (*self.writes, *self.reads)]
        theirs = [access.layout for access in (*other.writes, *other.reads)]
        same = self.op == other.op and self.engine is other.engine and self.options == other.options
        return same and mine == theirs

    def key(self) -> tuple[Any, ...]:
        """Everything but object identity and the line, for comparing traces."""
        writes = tuple(access.key() for access in self.writes)
        reads = tuple(access.key() for access in self.reads)
        place = (self.index, self.loop, self.after)
        return (*place, self.op, self.engine, writes, reads, self.options, self.name)

    def __repr__(self) -> str:
        return f"<{self.index} {self.engine.name}.{self.op} {self.writes} <- {self.reads}>"


@dataclass
class Loop:
    """A hardware loop: the body once, and how often it runs (None: known on the device only).

    `number` is what accesses call it by; `step` is what the counter gains in an iteration.
    """

    number: int
    trips: int | None
    step: int
    allocations_before: int = 0  # tensors that existed before the loop
    body: list[Item] = field(default_factory=list)
    meets: bool = False  # the other core, in its body or in a loop inside


Item = Instruction | Loop


@dataclass
class Trace:
    """The instruction stream of one core.

    `meetings` has, by the index of every core_barrier and sendrecv, the number of the meeting: the
    instruction of this number in the other core's trace is its counterpart. Inside a loop both
    meet again in every iteration, and the number is that of the first.
    """

    core: int = 0
    items: list[Item] = field(default_factory=list)
    meetings: dict[int, int] = field(default_factory=dict)

    def instructions(self) -> Iterator[Instruction]:
        """Every instruction once, loop bodies included, in program order."""
        return walk(self.items)

    @property
    def static_count(self) -> int:
        """Instructions in the program: what a compiler has to emit."""
        return sum(1 for _ in self.instructions())

    @property
    def compiler_count(self) -> int:
        """The same as a compiler counts: see `compiler_count`."""
        return sum(map(_compiled, self.instructions()))

    @property
    def executed_count(self) -> int:
        """Instructions run, loop bodies times trips; unknown trip counts count once."""
        return _executed(self.items)

    @property
    def unknown_loops(self) -> int:
        """Loops whose number of trips is known on the device only."""
        return _unknown_loops(self.items)

    def key(self) -> tuple[Any, ...]:
        """A value that is equal for equal traces."""
        return tuple(_item_key(item) for item in self.items)


def walk(items: list[Item]) -> Iterator[Instruction]:
    """Every instruction of a list of items, loop bodies included."""
    for item in items:
        if isinstance(item, Loop):
            yield from walk(item.body)
        else:
            yield item


def _compiled(instruction: Instruction) -> int:
    if instruction.op not in _MATMULS or instruction.engine.name != "tensor":
        return 1
    fp32 = any(access.layout.dtype == "float32" for access in instruction.reads)
    transposes = instruction.op == "nc_transpose" or bool(instruction.option("transpose"))
    return matmul_instructions("float32" if fp32 else "", transposes=transposes)


def _executed(items: list[Item]) -> int:
    total = 0
    for item in items:
        if isinstance(item, Loop):
            trips = 1 if item.trips is None else item.trips
            total += trips * _executed(item.body)
        else:
            total += 1
    return total


def _unknown_loops(items: list[Item]) -> int:
    loops = [item for item in items if isinstance(item, Loop)]
    return sum((loop.trips is None) + _unknown_loops(loop.body) for loop in loops)


def _item_key(item: Item) -> tuple[Any, ...]:
    if isinstance(item, Loop):
        return (
            "loop",
            item.number,
            item.trips,
            item.step,
            *(_item_key(inner) for inner in item.body),
        )
    return item.key()
