"""Timeline: when every instruction ran, and what that adds up to. Every time here is modelled."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from nkisim.machine import CONSTANTS_VERSION, Machine, Reading
from nkisim.memory.placement import MemoryUse
from nkisim.trace import Instruction

# What an instruction waited for last, if it was no row:
OWN_ENGINE = -1  # or DMA queue
DRAINED = -2  # everything before an iteration of a loop
OTHER_CORE = -3  # in a meeting


@dataclass
class Events:
    """Columns, one row per instruction that was scheduled; times in ns.

    `cause` is the row an instruction waited for last before it started, or one of the negative
    numbers above. `barriers` are where everything drained: the first row after it, and when.
    """

    instructions: list[Instruction] = field(default_factory=list)
    start_ns: array[float] = field(default_factory=lambda: array("d"))
    busy_end_ns: array[float] = field(default_factory=lambda: array("d"))
    released_ns: array[float] = field(default_factory=lambda: array("d"))
    visible_ns: array[float] = field(default_factory=lambda: array("d"))
    cause: array[int] = field(default_factory=lambda: array("q"))
    barriers: list[tuple[int, float]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.instructions)

    def reserve(self, instructions: Sequence[Instruction]) -> int:
        """Rows for instructions, in program order, without times yet; returns the first."""
        first = len(self)
        self.instructions.extend(instructions)
        zeros = bytes(len(instructions) * self.start_ns.itemsize)
        for column in (self.start_ns, self.busy_end_ns, self.released_ns, self.visible_ns):
            column.frombytes(zeros)
        self.cause.extend(array("q", [OWN_ENGINE]) * len(instructions))
        return first


@dataclass(frozen=True)
class Elision:
    """Iterations of a loop that were extrapolated, not scheduled one by one.

    They repeat the iteration before them, rows [first_row, end_row). At least one iteration that
    was scheduled follows them.
    """

    at_ns: float
    duration_ns: float
    iterations: int
    ns_per_iteration: float
    first_row: int
    end_row: int


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """A modelled run of one core."""

    machine: Machine
    reading: Reading
    makespan_ns: float  # without launch
    launch_ns: float
    busy_ns: dict[str, float]  # by engine; "dma" is data movement of all 16 engines together
    flops: int
    hbm_bytes: int
    static_instructions: int
    compiler_instructions: int  # the same, with matmuls as the pairs a compiler makes of them
    executed_instructions: int
    memory: MemoryUse | None
    events: Events
    elisions: tuple[Elision, ...] = ()
    unknown_loops: int = 0  # loops whose trip count only the device knows; timed as one iteration
    constants_version: str = CONSTANTS_VERSION

    @property
    def latency_ns(self) -> float:
        """What a caller waits: launch and run."""
        return self.makespan_ns + self.launch_ns

    @property
    def bound(self) -> str:
        """The busiest engine; "latency" when none is busy for half of the time."""
        if not self.makespan_ns:
            return "nothing"
        name = max(self.busy_ns, key=lambda engine: self.busy_ns[engine])
        return name if self.busy_ns[name] >= 0.5 * self.makespan_ns else "latency"

    @property
    def mfu(self) -> float:
        """Multiply-adds done, over what 128 x 128 x clock could have done."""
        peak = 2 * self.machine.partitions**2 * self.machine.timing.pe_ghz  # flops per ns
        return self.flops / (peak * self.makespan_ns) if self.makespan_ns else 0.0

    @property
    def hbm_gb_per_s(self) -> float:
        """Traffic to HBM over the makespan (bytes per ns)."""
        return self.hbm_bytes / self.makespan_ns if self.makespan_ns else 0.0

    @property
    def label(self) -> str:
        """How to quote a number from here."""
        open_loops = ""
        if self.unknown_loops:
            open_loops = (
                f", {self.unknown_loops} loop(s) of unknown length counted as one iteration"
            )
        return (
            f"modelled, {self.machine.name}, constants {self.constants_version},"
            f" {self.reading.value} reading{open_loops}"
        )
