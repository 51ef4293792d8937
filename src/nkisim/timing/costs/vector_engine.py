"""Vector engine: elements per cycle by instruction, type, place and stride (I26, A1, A2)."""

from __future__ import annotations

from nkisim.enums import engine
from nkisim.machine import Machine
from nkisim.memory.layout import MemoryRegion
from nkisim.timing.costs import gpsimd_engine, scalar_engine, tensor_engine
from nkisim.timing.costs.cost import Cost, cost_rule, full_size, streamed_elems
from nkisim.trace import Access, Instruction

_TWO_BYTE = ("bfloat16", "float16")
_ONE_BYTE = ("float8_e4m3", "float8_e5m2", "float8_e4m3fn")
_ALIGN_BYTES = 4
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
    """One element a cycle; fast modes for narrow types from NeuronCore-v3 on.

    A run-time offset makes a copy take 600 cycles at least (I26).
    """
    dynamic = bool(instruction.option("dynamic"))
    if instruction.engine is engine.scalar:
        return scalar_engine.copy_like(instruction, machine)
    if instruction.engine is engine.gpsimd:
        on_gpsimd = gpsimd_engine.dynamic_copy if dynamic else gpsimd_engine.elementwise
        return on_gpsimd(instruction, machine)
    elems = streamed_elems(instruction, machine)
    if dynamic:
        return vector_cost(machine, max(elems, machine.timing.dynamic_copy_min_cycles))
    return vector_cost(machine, elems / fast_mode(full_size(instruction), machine))


def fast_mode(operands: list[Access], machine: Machine) -> int:
    """4, 2 or 1 elements a cycle for a one-input instruction (A2).

    4 if all operands are narrow, contiguous and in SBUF; one level less for each of: one is not
    contiguous, one is in PSUM, one is not aligned (the last is an assumption).
    """
    timing = machine.timing
    narrow = (*_TWO_BYTE, *_ONE_BYTE) if timing.vector_wide_8bit else _TWO_BYTE
    if not timing.vector_wide_16bit or any(
        operand.layout.dtype not in narrow for operand in operands
    ):
        return 1
    lost = (
        not all(_innermost_contiguous(operand) for operand in operands),
        any(operand.layout.region is MemoryRegion.psum for operand in operands),
        not all(_aligned(operand) for operand in operands),
    )
    return max(1, 4 >> sum(lost))


def _innermost_contiguous(access: Access) -> bool:
    return not access.layout.free or access.layout.free[-1][0] == 1


def _aligned(access: Access) -> bool:
    """Whether every contiguous run begins on a multiple of 4 bytes of its partition."""
    layout = access.layout
    runs = (access.offset, *(stride for stride, _ in layout.free[:-1]))
    return all(elems * layout.itemsize_bytes % _ALIGN_BYTES == 0 for elems in runs)


@cost_rule("memset")
def memset(instruction: Instruction, machine: Machine) -> Cost:
    """One element a cycle; 16-bit zeros twice as fast (I26)."""
    if instruction.engine is engine.gpsimd:
        return gpsimd_engine.elementwise(instruction, machine)
    halves = instruction.writes[0].layout.itemsize_bytes == 2 and bool(instruction.option("zero"))
    cycles = streamed_elems(instruction, machine)
    return vector_cost(machine, cycles / 2 if halves else cycles)


@cost_rule("tensor_tensor", "scalar_tensor_tensor")
def two_inputs(instruction: Instruction, machine: Machine) -> Cost:
    """Two cycles an element from SBUF; one if an input is in PSUM or all are 16-bit."""
    if instruction.engine is engine.gpsimd:
        return gpsimd_engine.elementwise(instruction, machine)
    cycles = streamed_elems(instruction, machine) * _cycles_for_two(instruction, machine)
    return vector_cost(machine, cycles)


def _cycles_for_two(instruction: Instruction, machine: Machine) -> int:
    operands = full_size(instruction)
    inputs = [access for access in operands if access in instruction.reads]
    if len(inputs) < 2 or any(input_.layout.region is MemoryRegion.psum for input_ in inputs):
        return 1
    if machine.timing.vector_pair_16bit_free:
        return 1 if all(operand.layout.dtype in _TWO_BYTE for operand in operands) else 2
    cheap = instruction.option("op", instruction.option("op1")) in _CHEAP_ON_V2
    narrow = all(operand.layout.dtype == "bfloat16" for operand in operands)
    return 1 if narrow and cheap and all(map(_innermost_contiguous, operands)) else 2


@cost_rule("tensor_reduce")
def reduce(instruction: Instruction, machine: Machine) -> Cost:
    """One element a cycle; bf16 sums and maxima two (I26)."""
    data = instruction.reads[0].layout
    halves = data.dtype == "bfloat16" and instruction.option("op") in ("add", "max", "maximum")
    cycles = streamed_elems(instruction, machine)
    return vector_cost(machine, cycles / 2 if halves else cycles)


@cost_rule(
    "bn_stats", "max8", "nc_find_index8", "nc_match_replace8", "nc_stream_shuffle", "range_select"
)
def one_pass(instruction: Instruction, machine: Machine) -> Cost:
    """One element a cycle (I26)."""
    return vector_cost(machine, streamed_elems(instruction, machine))


@cost_rule("bn_aggr")
def bn_aggr(instruction: Instruction, machine: Machine) -> Cost:
    """13 cycles a triple (I26)."""
    return vector_cost(machine, 13 * streamed_elems(instruction, machine) / 3)


@cost_rule("tensor_tensor_scan", "tensor_scalar_cumulative")
def scan(instruction: Instruction, machine: Machine) -> Cost:
    """Two cycles an element (I26 for the scan; the cumulative form is taken to be alike)."""
    return vector_cost(machine, 2 * streamed_elems(instruction, machine))


@cost_rule("tensor_scalar_reduce")
def scalar_reduce(instruction: Instruction, machine: Machine) -> Cost:
    """One element a cycle, then the accumulator is read out (I26)."""
    extra = machine.timing.accumulator_read_cycles if len(instruction.writes) > 1 else 0
    return vector_cost(machine, streamed_elems(instruction, machine), extra)


@cost_rule("select_reduce", "tensor_copy_predicated")
def select(instruction: Instruction, machine: Machine) -> Cost:
    """Two cycles an element, one if an input is in PSUM (I26; assumed for select_reduce)."""
    in_psum = any(access.layout.region is MemoryRegion.psum for access in instruction.reads)
    return vector_cost(machine, streamed_elems(instruction, machine) * (1 if in_psum else 2))


@cost_rule("reciprocal")
def reciprocal(instruction: Instruction, machine: Machine) -> Cost:
    """8 cycles an element as documented (I26); a published profile implies 2.6."""
    cycles = streamed_elems(instruction, machine) * machine.timing.reciprocal_cycles_per_elem
    return vector_cost(machine, cycles)


@cost_rule("exponential", "quantize_mx")
def quarter_pass(instruction: Instruction, machine: Machine) -> Cost:
    """Four elements a cycle (A3); the sum that `exponential` may keep is part of it."""
    return vector_cost(machine, streamed_elems(instruction, machine) / 4)


@cost_rule("nc_transpose")
def transpose(instruction: Instruction, machine: Machine) -> Cost:
    """On the Vector engine one element a cycle; on the Tensor engine see its file."""
    if instruction.engine is engine.tensor:
        return tensor_engine.transpose(instruction, machine)
    return vector_cost(machine, streamed_elems(instruction, machine))
