"""Contracts: what an instruction demands of its engine and operands, as data, checked once a shape.

An instruction asks `CONTRACT.check(...)` before anything else. The verdict depends only on the
layouts, the places and the stated facts, so it is remembered: the second instruction of the same
shape costs one dictionary look-up, with every rule still in force.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from nkisim.device_rules.instruction_rules import OFFSET_IN_DIM
from nkisim.enums import engine
from nkisim.errors import NkiValidationError, refuse
from nkisim.isa.call import Call, Rule
from nkisim.isa.on_devices import check_on_devices
from nkisim.memory.footprint import repeats_elements
from nkisim.memory.layout import HBM, MemoryRegion
from nkisim.numerics.dtypes import SCALAR_ONLY
from nkisim.tensors.indirection import (
    require_reach,
    scalar_is_inside,
    value_outside_dimension,
)
from nkisim.tensors.tensor import Indirection, NkiTensor, ScalarOffset, VectorOffset

if TYPE_CHECKING:
    from nkisim.device_rules.rule_monitor import RuleMonitor
    from nkisim.machine import Machine
    from nkisim.running.session import Session

SBUF = frozenset({MemoryRegion.sbuf})
PSUM = frozenset({MemoryRegion.psum})
CHIP = SBUF | PSUM
DRAM = frozenset(HBM)
DMA_REACH = SBUF | DRAM

_ALLOCATED = (MemoryRegion.sbuf, MemoryRegion.psum, MemoryRegion.shared_hbm, *HBM)  # by preference

Facts = tuple[tuple[str, Hashable], ...]


@dataclass(frozen=True)
class Operand:
    """One tensor argument: where it may live and of which types it may be (None: any).

    `own_start` says that a rule of the instruction, not the quadrant rule, bounds where it starts.
    """

    name: str
    regions: frozenset[MemoryRegion]
    dtypes: frozenset[str] | None = None
    writes: bool = False
    own_start: bool = False
    optional: bool = False  # may be left out, or be a number


@dataclass(frozen=True, eq=False)
class Contract:
    """The demands of one instruction. The first engine is the one it runs on unless told."""

    name: str
    engines: tuple[engine, ...]
    operands: tuple[Operand, ...]
    rules: tuple[Rule, ...] = ()
    min_generation: int = 2
    choose: Callable[[Call], engine] | None = None  # where `engine.unknown` goes

    def check(
        self,
        core: Session,
        requested: engine,
        tensors: tuple[NkiTensor | None, ...],
        facts: Facts = (),
        *,
        may_leave: bool = False,
    ) -> engine:
        """The engine the call runs on, or a refusal; `tensors` in the order of `operands`."""
        key: list[Any] = [self, requested, facts]
        for tensor in tensors:
            if type(tensor) is not NkiTensor:
                key.append(tensor is None)
                continue
            layout = tensor.layout
            key.append(layout)
            if layout.on_chip:
                pitch = tensor.pitch_elems
                row, column = divmod(tensor.offset, pitch)
                key.append(row + tensor.storage.allocation.start_partition)
                key.append(layout.partition_stride == pitch)
                if layout.region is MemoryRegion.psum:
                    key.append(column)
            if tensor.indirection is not None:
                key.append(_offset_key(tensor.indirection))
                if not may_leave:
                    self._require_inside(core.monitor, tensor)
        look_up = tuple(key)
        try:
            verdict: engine | None = core.verdicts.get(look_up)
        except TypeError:
            self._refuse_unhashable(requested, facts)
        if verdict is None:
            verdict = self._judge(core, requested, tensors, dict(facts))
            core.verdicts[look_up] = verdict
        return verdict

    def _refuse_unhashable(self, requested: engine, facts: Facts) -> NoReturn:
        for name, value in (("engine", requested), *facts):
            if isinstance(value, (list, dict, set)):
                refuse(
                    self.name,
                    f"{name}={value!r}",
                    "an option is a number, a flag, an enum member, an operator or a tuple",
                    "pass one of those",
                )
        raise TypeError(f"unhashable arguments of {self.name}: {facts}")

    def _judge(
        self,
        core: Session,
        requested: engine,
        tensors: tuple[NkiTensor | None, ...],
        facts: dict[str, Any],
    ) -> engine:
        machine, monitor = core.machine, core.monitor
        self._require_generation(machine)
        named = self._named(tensors)
        call = Call(self.name, requested, machine, named, facts, monitor)
        where = self._engine(call)
        call = Call(self.name, where, machine, named, facts, monitor)
        for operand in self.operands:
            if operand.name in named:
                check_operand(call, operand, named[operand.name])
        for rule in self.rules:
            rule(call)
        check_on_devices(call)
        return where

    def _require_generation(self, machine: Machine) -> None:
        if machine.generation < self.min_generation:
            refuse(
                self.name,
                f"used on {machine.name}",
                f"exists from NeuronCore-v{self.min_generation} on",
                "choose a newer machine, or another instruction",
            )

    def _named(self, tensors: tuple[NkiTensor | None, ...]) -> dict[str, NkiTensor]:
        named = {}
        for operand, tensor in zip(self.operands, tensors, strict=True):
            if tensor is None and operand.optional:
                continue
            if not isinstance(tensor, NkiTensor):
                refuse(
                    self.name,
                    f"{operand.name} is a {type(tensor).__name__}",
                    "operands are NkiTensor views",
                    "allocate tiles with nl.ndarray and load them with nisa.dma_copy",
                )
            named[operand.name] = tensor
        return named

    def _engine(self, call: Call) -> engine:
        requested = call.engine
        if not isinstance(requested, engine):
            call.refuse(
                f"engine={requested!r}", "a member of nisa.engine", "use nisa.engine.vector ..."
            )
        if requested is engine.unknown:
            return self.choose(call) if self.choose else self.engines[0]
        if requested not in self.engines:
            names = ", ".join(f"engine.{member.name}" for member in self.engines)
            call.refuse(f"engine.{requested.name}", f"runs on {names}", "choose one of them")
        return requested

    def _require_inside(self, monitor: RuleMonitor, tensor: NkiTensor) -> None:
        require_reach(tensor)
        if not scalar_is_inside(tensor):
            raise NkiValidationError(
                f"run-time offset leaves tensor {tensor.name!r} {tensor.storage.shape}",
                instruction=self.name,
                limit=f"the view {tensor.shape} must stay inside at every value of the register",
                remedy="bound the loop or the register",
            )
        outside = value_outside_dimension(tensor)
        if outside is not None and monitor.unseen(OFFSET_IN_DIM):
            value, size = outside
            what = f"offset {value} on a dimension of {size} of tensor {tensor.name!r}"
            monitor.broken(OFFSET_IN_DIM, what, self.name)


def _offset_key(indirection: Indirection) -> Hashable:
    """What rules may look at of a run-time offset: its kind, and the form and place of an index."""
    if isinstance(indirection, ScalarOffset):
        return (ScalarOffset, indirection.unit_elems)
    index = indirection.rows if isinstance(indirection, VectorOffset) else indirection.index
    return (type(indirection), index.layout, index.start_partition)


def check_operand(call: Call, operand: Operand, tensor: NkiTensor) -> None:
    """Region, reach, type and access pattern of one operand."""
    _check_region(call, operand, tensor)
    _check_dtype(call, operand, tensor)
    layout = tensor.layout
    if operand.writes:
        _check_written_once(call, operand, tensor)
    if layout.on_chip:
        _check_partitions(call, operand, tensor)
        if call.engine is not engine.dma:
            if not operand.own_start:
                _check_quadrant(call, operand, tensor)
            _check_pattern(call, operand, tensor)


def _check_written_once(call: Call, operand: Operand, tensor: NkiTensor) -> None:
    """No element is written twice, except that shipped kernels let a whole row land on one.

    They want only the sums of an instruction, and a compute engine writes one element after the
    other, so the last one stays. DMA engines and the PE array write several at once.
    """
    at_once = call.engine in (engine.dma, engine.tensor)
    if repeats_elements(tensor.layout, but_for_strides_of_0=not at_once):
        call.refuse(
            f"{operand.name} {tensor.shape} with strides {tensor.strides} has an element twice",
            f"engine.{call.engine.name} writes an element once: which value would stay is not"
            " documented",
            "write one copy and broadcast where it is read",
        )


def _check_region(call: Call, operand: Operand, tensor: NkiTensor) -> None:
    if tensor.buffer not in operand.regions:
        allowed = ", ".join(sorted(region.value for region in operand.regions))
        call.refuse(
            f"{operand.name} lives in {tensor.buffer.value}",
            f"{operand.name} may live in {allowed}",
            _region_remedy(operand, tensor),
        )
    if call.engine is engine.gpsimd and tensor.buffer is MemoryRegion.psum:
        call.refuse(
            f"{operand.name} lives in psum and the instruction runs on gpsimd",
            "the GpSimd engine does not reach PSUM",
            "use the Vector or Scalar engine, or copy the tile to SBUF",
        )


def _region_remedy(operand: Operand, tensor: NkiTensor) -> str:
    """How to get an operand to where its instruction reaches it."""
    regions, here = operand.regions, tensor.buffer
    if operand.writes:
        first = next(region for region in _ALLOCATED if region in regions)
        after = "" if here in regions | CHIP else ", and nisa.dma_copy the result to HBM after it"
        return f"allocate {operand.name} with buffer=nl.{first.name}{after}"
    if here in HBM:
        place = "SBUF" if MemoryRegion.sbuf in regions else "PSUM by way of SBUF"
        return f"load it first: nisa.dma_copy into a tile in {place}"
    if regions <= DRAM:
        return "store it first: nisa.dma_copy to a tensor with buffer=nl.shared_hbm"
    there = "sbuf" if MemoryRegion.sbuf in regions else "psum"
    return f"copy it first: nisa.tensor_copy into a tile with buffer=nl.{there}"


def _check_dtype(call: Call, operand: Operand, tensor: NkiTensor) -> None:
    if operand.dtypes is not None and tensor.dtype not in operand.dtypes:
        call.refuse(
            f"{operand.name} is {tensor.dtype}",
            f"one of {', '.join(sorted(operand.dtypes))}",
            f"allocate {operand.name} with such a dtype"
            if operand.writes
            else "cast it with nisa.tensor_copy into a tile of that type",
        )
    if tensor.dtype in SCALAR_ONLY and operand.dtypes is None and call.engine is not engine.dma:
        call.refuse(
            f"{operand.name} is {tensor.dtype}",
            "no engine computes with it",
            "read it with nisa.scalar_load, or use int32",
        )


def _check_partitions(call: Call, operand: Operand, tensor: NkiTensor) -> None:
    machine = call.machine
    partitions = tensor.shape[0]
    if partitions > machine.partitions:
        call.refuse(
            f"{operand.name} has {partitions} partitions",
            f"{machine.partitions} partitions",
            "tile the first dimension",
        )
    if partitions > 1 and tensor.strides[0] != tensor.pitch_elems:
        call.refuse(
            f"{operand.name} steps over partitions (stride {tensor.strides[0]} elements)",
            f"partitions are contiguous: stride {tensor.pitch_elems} elements",
            "use consecutive partitions",
        )


def _check_quadrant(call: Call, operand: Operand, tensor: NkiTensor) -> None:
    quadrant = call.machine.quadrant_partitions
    count, start = tensor.shape[0], tensor.start_partition
    if count > 2 * quadrant:
        unit = call.machine.partitions
    else:
        unit = 2 * quadrant if count > quadrant else quadrant
    offset = tensor.indirection
    moves = offset if isinstance(offset, ScalarOffset) and offset.unit_elems else None
    if moves is not None and moves.unit_elems % (unit * tensor.pitch_elems) == 0:
        return
    if moves is not None and moves.unit_elems % tensor.pitch_elems == 0:
        call.refuse(
            f"{operand.name} has {count} partitions and a run-time start partition",
            f"{count} partitions start at a multiple of {unit} partitions",
            "step by such a multiple, or move the tile with DMA",
        )
    if start % unit:
        legal = ", ".join(str(p) for p in range(0, call.machine.partitions, unit))
        call.refuse(
            f"{operand.name} has {count} partitions starting at partition {start}",
            f"{count} partitions start at partition {legal}",
            "move the tile to such a partition (DMA reaches any partition)",
        )


def _check_pattern(call: Call, operand: Operand, tensor: NkiTensor) -> None:
    machine, layout = call.machine, tensor.layout
    psum = layout.region is MemoryRegion.psum
    most = machine.psum_operand_max_elems if psum else machine.sbuf_operand_max_elems
    if call.engine is not engine.tensor and layout.elems > most:
        call.refuse(
            f"{operand.name} has {layout.elems} elements per partition",
            f"{most} elements per partition in {layout.region.value}",
            "split the free dimension",
        )
    if len(layout.free) > machine.access_free_dims_max:
        call.refuse(
            f"{operand.name} {tensor.shape} needs {len(layout.free)} free dimensions",
            f"an access pattern has {machine.access_free_dims_max} free dimensions",
            "merge contiguous dimensions or loop over the outermost",
        )
    for stride, count in layout.free:
        if count > machine.access_size_max and len(layout.free) > 1:
            call.refuse(
                f"{operand.name} has a dimension of {count} elements",
                f"{machine.access_size_max} elements (uint16 size field)",
                "split the dimension",
            )
        if abs(stride) > machine.access_stride_max:
            call.refuse(
                f"{operand.name} has a stride of {stride} elements",
                f"{machine.access_stride_max} elements (int16 stride field)",
                "issue one instruction per slice of that dimension",
            )
