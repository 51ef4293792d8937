"""Session: the one kernel now running on one core. Everything an instruction needs hangs off it."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nkisim.device_rules.instruction_rules import SHARED_SCRATCH
from nkisim.device_rules.rule_monitor import RuleMonitor
from nkisim.device_rules.switches import DEFAULT, Switches
from nkisim.errors import NkiValidationError
from nkisim.memory.layout import MemoryRegion
from nkisim.memory.placement import Memory
from nkisim.numerics import dtypes
from nkisim.running.access_log import Touch
from nkisim.running.api_version import NkiVersion
from nkisim.running.loop_checks import LoopChecks
from nkisim.running.loop_consistency import refuse_foreign_iteration
from nkisim.running.loop_nest import LoopNest
from nkisim.running.overlap import refuse_overlap
from nkisim.source_lines import CallSites
from nkisim.tensors.indirection import row_places, scalar_value, whole_rows
from nkisim.tensors.registers import RunTimeValue
from nkisim.tensors.scalars import NkiScalar
from nkisim.tensors.tensor import FreeIndex, ScalarOffset, VectorOffset
from nkisim.trace import Access, Instruction, Loop, Options, Trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nkisim.enums import engine
    from nkisim.machine import Machine
    from nkisim.memory.layout import Layout
    from nkisim.memory.storage import Storage
    from nkisim.running.cores import CorePair, SharedTensors
    from nkisim.running.inspection import Inspector
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
    lnc: int = 1  # cores of the logical NeuronCore that the kernel is compiled for
    switches: Switches = DEFAULT


class Session(LoopNest):
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
        memory = Memory(
            settings.machine, self.core, with_values=settings.values, precise=settings.precise
        )
        self.inspector: Inspector | None = None
        self.monitor = RuleMonitor(settings.machine, settings.switches)
        programs = program[1] if program else 1
        checks = LoopChecks(self.monitor, settings.machine, programs, settings.lnc)
        super().__init__(memory, Trace(core=self.core), checks)
        self.verdicts: dict[Any, Any] = {}  # outcomes of pure checks, by what they depend on
        self.accumulators: dict[engine, Any] = {}  # reduce registers of Vector and Scalar engines
        self.ordered_depth = 0  # nesting of nl.no_reorder
        self._options: dict[Options, Options] = {}
        self._count = 0
        self._sites = CallSites()
        self._scratch: list[Storage] = []  # shared HBM that the kernel allocated

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
            self._own(storage)
        if not self._replaying:
            storage.allocation.sites = self._sites.callers()
            storage.allocation.is_named = bool(name)
        return storage

    def _own(self, storage: Storage) -> None:
        """A tensor of this core: of an iteration, if a loop is running; perhaps scratch."""
        if self._loops:
            storage.iteration = self._loops[-1].iteration
        if storage.allocation.region is MemoryRegion.shared_hbm and self.recording:
            self._scratch.append(storage)

    def require_scratch_elsewhere(self, returned: Sequence[NkiTensor]) -> None:
        """At the end of a kernel: shared HBM that is not returned is scratch."""
        results = [tensor.storage for tensor in returned]
        for storage in self._scratch:
            used = storage.allocation.first_use >= 0 and not storage.given
            if used and storage not in results:
                what = f"tensor {storage.allocation.name!r} in shared_hbm is not returned"
                sites = storage.allocation.sites
                place = sites[0].place if sites else None
                self.monitor.broken(SHARED_SCRATCH, what, "nl.ndarray", place)

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
            self._issue_in_loop(instruction)
        instruction.site = self._sites.caller()
        if not self._replaying:
            self._count = index + 1
            self._items.append(instruction)
        if self.pair is not None and not self._checking:
            self._log(self.pair, instruction, reads, writes)
        if self.inspector is not None and op not in _SYNCHRONISING and not self._checking:
            self.inspector.record(self.core, instruction, reads, writes)
        return instruction

    def _access(self, tensor: NkiTensor, index: int, op: str, *, writes: bool) -> Access:
        storage = tensor.storage
        allocation = storage.allocation
        layout = tensor.layout
        if storage.iteration is not None and storage.iteration not in self._iterations:
            refuse_foreign_iteration(tensor, op)
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
            else:
                if storage.accumulation is not None:
                    storage.accumulation.groups.note_read(*self._place(tensor, access))
                if storage.neighbours is not None:
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

    def _log(
        self,
        pair: CorePair,
        instruction: Instruction,
        reads: tuple[NkiTensor, ...],
        writes: tuple[NkiTensor, ...],
    ) -> None:
        """Remember what an instruction touches, for the race check after the launch."""
        read = [self._touch(*operand) for operand in zip(reads, instruction.reads, strict=True)]
        written = [
            self._touch(*operand) for operand in zip(writes, instruction.writes, strict=True)
        ]
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
        for loop in self._loops:
            loop.loop.meets = True
        if self.recording:
            self.trace.meetings[instruction.index] = self.pair.meetings
        return self.pair.meet(self.core, what, message)


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
