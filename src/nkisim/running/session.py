"""Session: the one kernel now running on one core. Everything an instruction needs hangs off it."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nkisim.errors import NkiValidationError
from nkisim.memory.placement import Memory
from nkisim.numerics import dtypes
from nkisim.running.api_version import NkiVersion
from nkisim.running.joint_log import Touch
from nkisim.running.overlap import refuse_overlap
from nkisim.source_lines import CallSites
from nkisim.tensors.indirection import row_places, scalar_value, whole_rows
from nkisim.tensors.layout import MemoryRegion
from nkisim.tensors.offsets import FreeIndex, ScalarOffset, VectorOffset
from nkisim.tensors.registers import RunTimeValue
from nkisim.tensors.scalars import NkiScalar
from nkisim.trace import Access, Instruction, Item, Loop, Options, Trace, walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nkisim.enums import engine
    from nkisim.machine import Machine
    from nkisim.memory.storage import Storage
    from nkisim.running.cores import CorePair, SharedTensors
    from nkisim.running.inspection import Inspector
    from nkisim.tensors.layout import Layout
    from nkisim.tensors.tensor import NkiTensor


_ACCUMULATING = frozenset({"nc_matmul", "nc_matmul_mx"})  # they keep PSUM history themselves
FAST, FIXED = "fast", "fixed"
SUMMATIONS = (FAST, FIXED)
REFUSE, REPORT = "refuse", "report"
RACE_HANDLING = (REFUSE, REPORT)
_SYNCHRONISING = frozenset({"core_barrier"})  # orders accesses to its tensor, touches no byte of it


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How kernels are run."""

    machine: Machine
    values: bool = True  # False: shapes only, no data
    precise: bool = True  # False: low-precision tensors are stored unrounded (NKI_PRECISE_FP=0)
    summation: str = FAST  # FIXED: sums of a matrix product do not depend on its shape
    report_races: bool = False  # in Run.races, instead of refusing them
    nki: NkiVersion = "0.7"  # whose API and front end the kernel meets


class Session:
    """State of one core while one kernel runs."""

    def __init__(
        self,
        settings: Settings,
        program: tuple[int, int] | None = None,
        pair: CorePair | None = None,
    ) -> None:
        self.settings = settings
        self.machine = settings.machine
        self.values = settings.values
        self.traced = settings.nki != "0.6"  # 0.6's default front end parses, 0.7's traces
        self.program = program  # (program id, number of programs); None without a launch grid
        self.core = program[0] if program else 0
        self.pair = pair
        self.shared: SharedTensors | None = None if pair is None else pair.shared
        self._shared_seen = 0
        self.memory = Memory(
            settings.machine, self.core, with_values=settings.values, precise=settings.precise
        )
        self.inspector: Inspector | None = None
        self.trace = Trace(core=self.core)
        self.verdicts: dict[Any, Any] = {}  # outcomes of pure checks, by what they depend on
        self.accumulators: dict[engine, Any] = {}  # reduce registers of Vector and Scalar engines
        self.ordered_depth = 0  # nesting of nl.no_reorder
        self._items: list[Item] = self.trace.items
        self._options: dict[Options, Options] = {}
        self._count = 0
        self._loops: list[tuple[Loop, list[Item]]] = []  # with the list the loop itself is in
        self._loops_seen = 0
        self._sites = CallSites()
        self._replaying = 0  # > 0 while a loop iteration after the first one runs

    @property
    def recording(self) -> bool:
        """Whether instructions enter the trace (not in later iterations of a loop)."""
        return not self._replaying

    def allocate(
        self,
        shape: Sequence[int],
        dtype: str,
        region: MemoryRegion,
        name: str | None,
        address: tuple[int, int] | None,
    ) -> Storage:
        """A fresh tensor's storage; shared HBM is one storage for both cores."""
        if not self.traced:
            _require_type_of_0_6(dtype)
        if region is MemoryRegion.shared_hbm and self.shared is not None:
            key = name or f"shared_{self._shared_seen}"
            self._shared_seen += 1
            storage = self.shared.attach(key, self.memory, shape, dtype)
        else:
            storage = self.memory.allocate(shape, dtype, region, name, address)
        if not self._replaying:
            storage.allocation.sites = self._sites.callers()
        return storage

    def issue(
        self,
        op: str,
        where: engine,
        writes: tuple[NkiTensor, ...],
        reads: tuple[NkiTensor, ...],
        options: Options = (),
        name: str | None = None,
    ) -> Instruction:
        """Put an instruction into the trace after checking that its operands are still theirs."""
        index = self._count
        read = tuple([self._access(tensor, index, op, writes=False) for tensor in reads])
        written = tuple([self._access(tensor, index, op, writes=True) for tensor in writes])
        refuse_overlap(op, written, read)
        if options:
            options = self._options.setdefault(options, options)
        instruction = Instruction(index, op, where, written, read, options, name)
        if self._loops:
            instruction.loop = self._loops[-1][0].number
        if self._replaying:
            self._require_recorded(instruction)
        else:
            instruction.site = self._sites.caller()
            self._count = index + 1
            self._items.append(instruction)
        if self.pair is not None:
            self._log(self.pair, instruction, reads, writes)
        if self.inspector is not None and op not in _SYNCHRONISING:
            self.inspector.watch(self.core, instruction, reads, writes)
        return instruction

    def _require_recorded(self, instruction: Instruction) -> None:
        """Refuse a later iteration that issues what the first one did not."""
        loop = self._loops[-1][0]
        if not loop.followed:
            return
        recorded = loop.body[loop.replayed] if loop.replayed < len(loop.body) else None
        loop.replayed += 1
        if not isinstance(recorded, Instruction) or not recorded.same_program(instruction):
            expected = getattr(recorded, "op", "nothing more")
            self._refuse_other_turn(f"{instruction.op}, where the first one issued {expected}")
        else:
            instruction.index, instruction.site = recorded.index, recorded.site

    def finish_turn(self, loop: Loop) -> None:
        """A later iteration of a loop has ended: it issued all that the first one did."""
        if loop.followed and loop.replayed != len(loop.body):
            self._refuse_other_turn(f"{loop.replayed} instructions, the first one {len(loop.body)}")
        loop.replayed = 0

    @staticmethod
    def _refuse_other_turn(what: str) -> None:
        raise NkiValidationError(
            f"a later iteration of a hardware loop issues {what}",
            instruction="nl.fori_loop",
            limit="the body is compiled once: every iteration runs the same instructions",
            remedy="keep Python state out of the body, and peel iterations that differ",
        )

    def _access(self, tensor: NkiTensor, index: int, op: str, *, writes: bool) -> Access:
        storage = tensor.storage
        allocation = storage.allocation
        layout = tensor.layout
        if tensor.indirection is None:
            access = Access(allocation, layout, tensor.offset)
        else:
            access = self._dynamic_access(tensor)
        if not self._replaying:
            if allocation.first_use < 0:
                allocation.first_use = index
            allocation.last_use = index
        if op not in _SYNCHRONISING:
            if writes:
                self._note_write(tensor, access, op)
            elif storage.neighbours is not None:
                storage.neighbours.check_read(storage, *self._place(tensor, access))
        return access

    @staticmethod
    def _place(tensor: NkiTensor, access: Access) -> tuple[Layout, int]:
        """Where a view lies; of a free-indexed one only its partitions are known."""
        if isinstance(tensor.indirection, FreeIndex):
            return whole_rows(tensor)
        return access.layout, access.offset

    def _note_write(self, tensor: NkiTensor, access: Access, op: str) -> None:
        """PSUM history starts again, and what lies below a manually placed tensor is gone."""
        storage = tensor.storage
        storage.written = True
        if storage.accumulation is not None and op not in _ACCUMULATING:
            storage.accumulation.clear(*self._place(tensor, access))
        if storage.neighbours is not None:
            storage.neighbours.note_write(storage, *self._place(tensor, access))

    def _dynamic_access(self, tensor: NkiTensor) -> Access:
        allocation, layout = tensor.storage.allocation, tensor.layout
        indirection = tensor.indirection
        if not isinstance(indirection, ScalarOffset):
            access = Access(allocation, layout, tensor.offset)
            access.anywhere = True
            return access
        source = indirection.source
        value = scalar_value(source)
        loop, factor = self._followed(source)
        if loop is None:
            bounds = source.bounds if isinstance(source, RunTimeValue) else None
            apart = isinstance(source, NkiScalar) and not source.is_constant
            if bounds is not None and not apart:
                value = bounds[1]  # a counter that outlived its loop has the last value
            offset = tensor.offset + (value or 0) * indirection.unit_elems
            access = Access(allocation, layout, offset)
            access.anywhere = bounds is None or apart
            return access
        offset = tensor.offset + (value or 0) * indirection.unit_elems
        step = indirection.unit_elems * factor * loop.step
        return Access(allocation, layout, offset, step, loop.number)

    def _followed(self, source: NkiTensor | RunTimeValue) -> tuple[Loop | None, int]:
        """The one loop whose counter a value follows evenly, and how many units a count is."""
        factors = source.loop_factors if isinstance(source, RunTimeValue) else {}
        is_data = isinstance(source, NkiScalar) and source.is_data
        if len(factors) != 1 or is_data:
            return None, 0
        ((number, factor),) = factors.items()
        loop = self._running(number)
        return (None, 0) if factor is None else (loop, factor)

    def _running(self, number: int) -> Loop | None:
        return next((loop for loop, _ in self._loops if loop.number == number), None)

    def _log(
        self,
        pair: CorePair,
        instruction: Instruction,
        reads: tuple[NkiTensor, ...],
        writes: tuple[NkiTensor, ...],
    ) -> None:
        """Remember what an instruction touches, for the race check after the launch."""
        read = [self._touch(*each) for each in zip(reads, instruction.reads, strict=True)]
        written = [self._touch(*each) for each in zip(writes, instruction.writes, strict=True)]
        pair.log.add(self.core, instruction, tuple(read), tuple(written))

    def _touch(self, tensor: NkiTensor, access: Access) -> Touch:
        """Where an operand lies; without values some have no known place."""
        indirection = tensor.indirection
        if indirection is None:
            return Touch(tensor.storage, access)
        rows = loop = None
        if isinstance(indirection, VectorOffset) and self.values:
            rows = tuple(row_places(tensor, indirection))
        if access.step and not self.values:
            loop = self._running(access.loop)
        placed = self.values and isinstance(indirection, ScalarOffset)
        known = placed or rows is not None or not access.anywhere
        return Touch(tensor.storage, access, loop, rows, dynamic=True, known=known)

    def meet(self, instruction: Instruction, what: str, message: Any) -> Any:
        """Wait for the other core in an instruction called `what`; returns its message."""
        assert self.pair is not None, "instructions that meet need two cores"
        for loop, _ in self._loops:
            loop.meets = True
        if self.recording:
            self.trace.meetings[instruction.index] = self.pair.meetings
        return self.pair.meet(self.core, what, message)

    def begin_loop(self, trips: int | None, step: int) -> Loop:
        """Start a dynamic loop: what is issued until `repeat_loop` is its body."""
        unrecorded = -2 - len(self._loops)  # tells it from the loops around it, and from no loop
        number = self._loops_seen if self.recording else unrecorded
        loop = Loop(number, trips, step, len(self.memory.allocations))
        self._loops.append((loop, self._items))
        if self.recording:
            self._loops_seen += 1
            self._items.append(loop)
            self._items = loop.body
        return loop

    def loops_around(self) -> tuple[int, ...]:
        """Numbers of the dynamic loops now running, outermost first."""
        return tuple(loop.number for loop, _ in self._loops)

    def outlives_iteration(self, storage: Storage) -> bool:
        """Whether a tensor was there before the innermost dynamic loop now running."""
        if not self._loops:
            return False
        return storage.allocation.index < self._loops[-1][0].allocations_before

    def follows_counter(self, *values: object) -> bool:
        """Whether one of the values changes with a dynamic loop now running."""
        followed = [v.loop_factors for v in values if isinstance(v, RunTimeValue)]
        return any(self._running(number) is not None for each in followed for number in each)

    def repeat_loop(self) -> None:
        """The first iteration is recorded; the ones that follow are run and not recorded."""
        self._replaying += 1
        self.memory.replaying = True

    def end_loop(self, loop: Loop, *, repeated: bool) -> None:
        """Leave the loop; what it shares with the code around it lives through all of it."""
        if repeated:
            self.finish_turn(loop)
            self._replaying -= 1
            self.memory.replaying = self._replaying > 0
        ended, self._items = self._loops.pop()
        assert ended is loop, "loops end in the order they began, reversed"
        if not self._replaying:
            self._keep_alive(loop)

    def require_ended(self) -> None:
        """Refuse a kernel that left a dynamic loop before its end."""
        if self._loops:
            raise NkiValidationError(
                "a dynamic loop that the kernel left by break or return",
                instruction="nl.dynamic_range",
                limit="a hardware loop runs to its end",
                remedy="bound the loop by a register, or use nl.while_loop",
            )

    def _keep_alive(self, loop: Loop) -> None:
        body = list(walk(loop.body))
        if not body:
            return
        first, last = body[0].index, body[-1].index
        for instruction in body:
            for access in (*instruction.reads, *instruction.writes):
                if access.allocation.index < loop.allocations_before:
                    access.allocation.first_use = min(access.allocation.first_use, first)
                    access.allocation.last_use = max(access.allocation.last_use, last)


def _require_type_of_0_6(dtype: str) -> None:
    kind = dtypes.canonical(dtype)
    if kind in dtypes.SCALAR_ONLY:
        raise dtypes.DTypeError(
            f"dtype {kind}",
            limit="NKI 0.6 does not have it",
            remedy="use int32, or install(version='0.7')",
        )


_current: ContextVar[Session | None] = ContextVar("nkisim_session", default=None)


def current() -> Session:
    """The running session; instructions outside of a kernel are refused."""
    session = _current.get()
    if session is None:
        raise NkiValidationError(
            "an NKI instruction outside of a kernel",
            limit="instructions run inside nki.simulate(kernel)(...) or nkisim.run(kernel, ...)",
            remedy="call the kernel through one of them",
        )
    return session


def current_or_none() -> Session | None:
    """The running session, or None outside of kernels."""
    return _current.get()


@contextmanager
def activated(session: Session) -> Iterator[None]:
    """Make `session` the running one for the length of a with-block."""
    token = _current.set(session)
    try:
        yield
    finally:
        _current.reset(token)
