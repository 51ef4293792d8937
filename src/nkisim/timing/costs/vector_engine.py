"""Vector engine: elements per cycle by instruction, type, place and stride (I26, A1, A2)."""

from __future__ import annotations

from nkisim.enums import engine
from nkisim.layout import MemoryRegion
from nkisim.machine import Machine
from nkisim.timing.costs import gpsimd_engine, scalar_engine, tensor_engine
from nkisim.timing.costs.cost import Cost, cost_rule, full_size, most_elems, stride_factor
from nkisim.trace import Access, Instruction

_TWO_BYTE = 2
_ALIGN_BYTES = 4
_PSUM = MemoryRegion.psum
_CHEAP_ON_V2 = ("add", "subtract", "multiply")


def vector_cost(machine: Machine, cycles: float, extra_cycles: float = 0.0) -> Cost:
    """An instruction that streams for `cycles`: never less than the issue floor (I26)."""
    timing = machine.timing
    ns = 1.0 / timing.vector_ghz
    streaming = cycles + timing.vector_startup_cycles
    busy = max(float(timing.engine_min_cycles), streaming) + extra_cycles
    latency = max(busy, cycles + extra_cycles + timing.vector_latency_cycles)
    return Cost(busy_ns=busy * ns, latency_ns=latency * ns)


@cost_rule("tensor_copy", "tensor_scalar")
def copy_like(instruction: Instruction, machine: Machine) -> Cost:
    """One element a cycle; 16-bit fast modes from NeuronCore-v3 on."""
    if instruction.engine is engine.scalar:
        return scalar_engine.copy_like(instruction, machine)
    if instruction.engine is engine.gpsimd:
        return gpsimd_engine.elementwise(instruction, machine)
    elems = most_elems(instruction)
    if instruction.option("dynamic"):
        return vector_cost(machine, max(elems, machine.timing.dynamic_copy_min_cycles))
    speed = fast_mode(full_size(instruction), machine)
    return vector_cost(machine, elems * stride_factor(instruction, machine) / speed)


def fast_mode(operands: list[Access], machine: Machine) -> int:
    """4, 2 or 1 elements a cycle for a one-input instruction (A2)."""
    if not machine.timing.vector_wide_16bit:
        return 1
    if any(access.layout.itemsize_bytes != _TWO_BYTE for access in operands):
        return 1
    contiguous = all(_innermost_contiguous(access) for access in operands)
    in_psum = any(access.layout.region is _PSUM for access in operands)
    speed = 4 if contiguous and not in_psum else 2
    if in_psum and not contiguous:
        return 1
    aligned = all(access.offset * _TWO_BYTE % _ALIGN_BYTES == 0 for access in operands)
    return speed if aligned else speed // 2


def _innermost_contiguous(access: Access) -> bool:
    return not access.layout.free or access.layout.free[-1][0] == 1


@cost_rule("memset")
def memset(instruction: Instruction, machine: Machine) -> Cost:
    """One element a cycle; 16-bit zeros twice as fast (I26)."""
    if instruction.engine is engine.gpsimd:
        return gpsimd_engine.elementwise(instruction, machine)
    layout = instruction.writes[0].layout
    halves = layout.itemsize_bytes == _TWO_BYTE and bool(instruction.option("zero"))
    cycles = layout.elems * stride_factor(instruction, machine)
    return vector_cost(machine, cycles / 2 if halves else cycles)


@cost_rule("tensor_tensor", "scalar_tensor_tensor")
def two_inputs(instruction: Instruction, machine: Machine) -> Cost:
    """Two cycles an element from SBUF; one if an input is in PSUM or all are 16-bit."""
    if instruction.engine is engine.gpsimd:
        return gpsimd_engine.elementwise(instruction, machine)
    elems = most_elems(instruction) * stride_factor(instruction, machine)
    return vector_cost(machine, elems * _cycles_for_two(instruction, machine))


def _cycles_for_two(instruction: Instruction, machine: Machine) -> int:
    operands = full_size(instruction)
    inputs = [access for access in operands if access in instruction.reads]
    if sum(access.layout.region is _PSUM for access in inputs) == 1 or len(inputs) < _TWO_BYTE:
        return 1
    narrow = all(access.layout.itemsize_bytes == _TWO_BYTE for access in operands)
    if narrow and machine.timing.vector_pair_16bit_free:
        return 1
    cheap = instruction.option("op") in _CHEAP_ON_V2 or instruction.option("op1") in _CHEAP_ON_V2
    return 1 if narrow and cheap and all(map(_innermost_contiguous, operands)) else 2


@cost_rule("tensor_reduce")
def reduce(instruction: Instruction, machine: Machine) -> Cost:
    """One element a cycle; bf16 sums and maxima two (I26)."""
    data = instruction.reads[0].layout
    halves = data.dtype == "bfloat16" and instruction.option("op") in ("add", "max", "maximum")
    cycles = data.elems * stride_factor(instruction, machine)
    return vector_cost(machine, cycles / 2 if halves else cycles)


@cost_rule("bn_stats", "range_select", "nc_stream_shuffle", "max8", "nc_find_index8")
def one_pass(instruction: Instruction, machine: Machine) -> Cost:
    """One element a cycle (I26)."""
    return vector_cost(machine, most_elems(instruction) * stride_factor(instruction, machine))


@cost_rule("nc_match_replace8")
def match_replace(instruction: Instruction, machine: Machine) -> Cost:
    """One element a cycle (I26)."""
    return one_pass(instruction, machine)


@cost_rule("bn_aggr")
def bn_aggr(instruction: Instruction, machine: Machine) -> Cost:
    """13 cycles a triple (I26)."""
    return vector_cost(machine, 13 * instruction.reads[0].layout.elems / 3)


@cost_rule("tensor_tensor_scan", "tensor_scalar_cumulative")
def scan(instruction: Instruction, machine: Machine) -> Cost:
    """Two cycles an element (I26 for the scan; the cumulative form is taken to be alike)."""
    return vector_cost(machine, 2 * most_elems(instruction))


@cost_rule("tensor_scalar_reduce")
def scalar_reduce(instruction: Instruction, machine: Machine) -> Cost:
    """One element a cycle, then the accumulator is read out (I26)."""
    elems = most_elems(instruction) * stride_factor(instruction, machine)
    return vector_cost(machine, elems, machine.timing.accumulator_read_cycles)


@cost_rule("select_reduce", "tensor_copy_predicated")
def select(instruction: Instruction, machine: Machine) -> Cost:
    """Two cycles an element, one if an input is in PSUM (I26)."""
    in_psum = any(access.layout.region is _PSUM for access in instruction.reads)
    return vector_cost(machine, most_elems(instruction) * (1 if in_psum else 2))


@cost_rule("reciprocal")
def reciprocal(instruction: Instruction, machine: Machine) -> Cost:
    """8 cycles an element as documented (I26); a published profile implies 2.6."""
    cycles = most_elems(instruction) * machine.timing.reciprocal_cycles_per_elem
    return vector_cost(machine, cycles)


@cost_rule("exponential", "quantize_mx")
def quarter_pass(instruction: Instruction, machine: Machine) -> Cost:
    """Four elements a cycle (A3)."""
    return vector_cost(machine, most_elems(instruction) / 4)


@cost_rule("nc_transpose")
def transpose(instruction: Instruction, machine: Machine) -> Cost:
    """On the Vector engine one element a cycle; on the Tensor engine see its file."""
    if instruction.engine is engine.tensor:
        return tensor_engine.transpose(instruction, machine)
    return vector_cost(machine, instruction.reads[0].layout.elems)
