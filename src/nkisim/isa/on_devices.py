"""Device rules that concern operands of many instructions alike: steps, engines, offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nkisim.device_rules import instruction_rules as rules
from nkisim.enums import engine
from nkisim.memory.layout import coalesce
from nkisim.tensors.tensor import ScalarOffset, VectorOffset

if TYPE_CHECKING:
    from nkisim.isa.call import Call
    from nkisim.tensors.tensor import NkiTensor

_COMPUTE: Final = (engine.tensor, engine.vector, engine.scalar, engine.gpsimd)
_ELEMENTWISE: Final = frozenset({"tensor_tensor", "tensor_scalar", "scalar_tensor_tensor"})

Pairs = tuple[tuple[int, int], ...]


def check_on_devices(call: Call) -> None:
    """What devices were reported not to take, whatever the documentation says."""
    if call.engine in _COMPUTE:
        _fixed_operands(call)
        if call.engine is engine.gpsimd and call.instruction in _ELEMENTWISE:
            call.breaks(rules.GPSIMD_ELEMENTWISE, "on engine.gpsimd")
    elif call.engine is engine.dma:
        for name, tensor in call.tensors.items():
            _dma_steps(call, name, tensor)


def _fixed_operands(call: Call) -> None:
    for name, tensor in call.tensors.items():
        if isinstance(tensor.indirection, ScalarOffset):
            call.breaks(rules.DYNAMIC_COMPUTE, f"{name} at a run-time offset")


def _dma_steps(call: Call, name: str, tensor: NkiTensor) -> None:
    across, along = _pattern(call, tensor)
    if len(across) > 1:
        sides = f"{name} {tensor.shape} with strides {tensor.strides}"
        call.breaks(rules.DMA_SPLIT_PARTITIONS, f"{sides} walks partitions in two dimensions")
    for found, rule, what in (
        (across, rules.DMA_PARTITION_STEP, "from partition to partition"),
        (along, rules.DMA_FREE_STEP, "in a free dimension"),
    ):
        for step, _ in found:
            if step < 0:
                call.breaks(rule, f"{name} steps by {step} elements {what}")
    most = call.machine.access_stride_max
    for step, _ in along:
        if tensor.layout.on_chip and abs(step) > most:
            what = f"{name} has a step of {step} elements, the most is {most}"
            call.breaks(rules.WIDE_STEP, what)


def _pattern(call: Call, tensor: NkiTensor) -> tuple[Pairs, Pairs]:
    """(step, count) pairs that go over the partitions of the SBUF side, and all the others.

    The SBUF side of a DMA is the one with fewer partitions, if both are on chip.
    """
    gathered = isinstance(tensor.indirection, VectorOffset)
    shape, strides = list(tensor.shape), list(tensor.strides)
    if call.instruction == "dma_transpose" and not tensor.layout.on_chip:
        shape.insert(0, shape.pop())  # the last axis goes to the partitions
        strides.insert(0, strides.pop())
    counts = [other.shape[0] for other in call.tensors.values() if other.layout.on_chip]
    left = max(counts, default=1)
    if gathered:
        return (), coalesce(tuple(shape[1:]), tuple(strides[1:]))
    sizes: list[int] = []
    steps: list[int] = []
    while left > 1 and shape:
        count, step = shape.pop(0), strides.pop(0)
        taken = count
        if left % count:
            taken = left if count % left == 0 else count
            shape.insert(0, count // taken)
            strides.insert(0, step)
            step *= count // taken
        sizes.append(taken)
        steps.append(step)
        left = left // taken if left % taken == 0 else 1
    return coalesce(tuple(sizes), tuple(steps)), coalesce(tuple(shape), tuple(strides))
