"""Which steps of a run are one operation: norms and attentions, by what they read and write.

A norm is a reduction and the pointwise steps around it that read nothing else of its size: its own
input, and numbers for each channel. An attention is a softmax, the products before and after it,
and what scales, masks or casts in between. Activations stay apart. Everything else is by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from trnconv.traces.operation import (
    ATTENTION,
    GROUP_NORM,
    GROUP_STATISTICS,
    MODULATION,
    PRODUCT,
    RMS_NORM,
    RMS_NORM_STEP,
    Operation,
)
from trnconv.traces.step import (
    ATTENDING,
    CONVOLUTION,
    NORM,
    POINTWISE,
    REDUCTION,
    SOFTMAX,
    Step,
)
from trnconv.traces.step import PRODUCT as PRODUCT_STEP

ACTIVATIONS = frozenset(
    ["silu", "relu", "gelu", "tanh", "sigmoid", "leaky_relu", "elu", "softplus", "mish"]
)
GROUP_STATISTICS_STEP = "group_factors"
_NEIGHBOURHOOD = 24  # steps: an operation's lie close together


@dataclass
class _Run:
    """The steps of a run, and who reads and writes what."""

    steps: Sequence[Step]
    taken: set[int] = field(default_factory=set)

    def writer(self, at: int, memory: int) -> int | None:
        """The last step before `at` that wrote a memory, if it is near."""
        for number in range(at - 1, max(-1, at - 1 - _NEIGHBOURHOOD), -1):
            if self.steps[number].memory == memory:
                return number
        return None

    def free(self, at: int) -> bool:
        return at not in self.taken

    def after(self, at: int) -> range:
        return range(at + 1, min(len(self.steps), at + 1 + _NEIGHBOURHOOD))


def operations_of(steps: Sequence[Step]) -> Counter[Operation]:
    """All that is no convolution of ours: every step belongs to exactly one operation."""
    run = _Run(steps)
    placed: list[tuple[int, Operation]] = []
    for find, role in ((_attention, SOFTMAX), (_rms_norm, REDUCTION)):
        for at, step in enumerate(steps):
            if step.role == role and run.free(at):
                operation = find(run, at)
                if operation is not None:
                    placed.append((at, operation))
    for at, step in enumerate(steps):
        if run.free(at) and step.role != CONVOLUTION:
            placed.append((at, _alone(step)))
    return Counter(operation for _, operation in sorted(placed, key=lambda pair: pair[0]))


def _rms_norm(run: _Run, at: int) -> Operation | None:
    """A reduction and the pointwise steps that make a norm of it; None if no norm comes of it."""
    members = [at]
    source = run.steps[at].operands[0]
    while (before := _only_for(run, members[0], source.memory)) is not None:
        members.insert(0, before)
        source = run.steps[before].operands[0]
    memories = {run.steps[number].memory for number in members}
    for number in run.after(at):
        step = run.steps[number]
        if run.free(number) and step.role == POINTWISE and _belongs(step, memories, source.memory):
            members.append(number)
            memories.add(step.memory)
        elif any(operand.memory in memories for operand in step.operands):
            break
    last = run.steps[members[-1]]
    if last.elements < prod(source.shape):
        return None
    run.taken.update(members)
    channels = prod(source.shape) // max(run.steps[at].elements, 1)
    positions = prod(source.shape) // channels
    return _grouped(RMS_NORM, run, members, (1, channels, positions))


def _only_for(run: _Run, at: int, memory: int) -> int | None:
    """The pointwise step of one operand that wrote a memory (a cast, a square), if it did."""
    before = run.writer(at, memory)
    if before is None or not run.free(before):
        return None
    step = run.steps[before]
    large = {operand.memory for operand in step.operands}
    return (
        before if step.role == POINTWISE and len(large) == 1 and not _is_activation(step) else None
    )


def _belongs(step: Step, members: set[int], source: int) -> bool:
    """Whether it reads the norm so far, and besides it nothing of the result's size but x."""
    if _is_activation(step) or not any(operand.memory in members for operand in step.operands):
        return False
    others = [
        operand
        for operand in step.operands
        if operand.memory not in members and operand.memory != source
    ]
    return all(prod(operand.shape) < step.elements or step.elements == 1 for operand in others)


def _attention(run: _Run, at: int) -> Operation | None:
    """softmax(q k) v; None if there is no product on either side."""
    members = [at]
    scores = _back_to_product(run, at, members)
    values = _on_to_product(run, at, members)
    if scores is None or values is None:
        return None
    for operand in run.steps[scores].operands[:2]:
        before = _only_for(run, scores, operand.memory)
        if before is not None:
            members.append(before)
    masked = int(any(run.steps[number].name == "add" for number in members))
    for number in run.after(values)[:1]:
        step = run.steps[number]
        read = [operand.memory for operand in step.operands]
        if step.role == POINTWISE and read == [run.steps[values].memory]:
            members.append(number)
    members.sort()
    run.taken.update(members)
    batch, queries, head = _batched(run.steps[scores].operands[0].shape)
    keys = _batched(run.steps[scores].operands[1].shape)[2]
    return _grouped(ATTENTION, run, members, (batch, queries, keys, head, masked))


def _back_to_product(run: _Run, at: int, members: list[int]) -> int | None:
    """Through what scales and masks scores, to the product they are; all of it joins `members`."""
    before = run.writer(at, run.steps[at].operands[0].memory)
    while before is not None:
        members.append(before)
        step = run.steps[before]
        if step.role == PRODUCT_STEP:
            return before
        before = run.writer(before, step.operands[0].memory) if step.role == POINTWISE else None
    return None


def _on_to_product(run: _Run, at: int, members: list[int]) -> int | None:
    memories = {run.steps[at].memory}
    for number in run.after(at):
        step = run.steps[number]
        reads = any(operand.memory in memories for operand in step.operands)
        if reads and step.role == PRODUCT_STEP:
            members.append(number)
            return number
        if reads and step.role == POINTWISE:
            members.append(number)
            memories.add(step.memory)
    return None


def _alone(step: Step) -> Operation:
    kind = step.name
    sizes: tuple[int, ...] = ()
    if step.role == NORM:
        kind, sizes = _norm_alone(step)
    elif step.role == ATTENDING:
        kind, sizes = ATTENTION, step.sizes
    elif step.role == PRODUCT_STEP:
        kind, sizes = PRODUCT, _product_sizes(step)
    return Operation(
        kind,
        step.shape,
        step.dtype,
        step.read_bytes,
        step.written_bytes,
        (step.name,),
        step.read_bytes + step.written_bytes,
        sizes,
        step.activation,
    )


def _norm_alone(step: Step) -> tuple[str, tuple[int, ...]]:
    if step.sizes:
        return MODULATION, step.sizes
    images, channels = step.shape[:2]
    positions = prod(step.shape[2:])
    if step.name == RMS_NORM_STEP:
        return RMS_NORM, (images, channels, positions)
    if step.name == GROUP_STATISTICS_STEP:
        images, channels, *rest = step.operands[0].shape
        return GROUP_STATISTICS, (images, channels, step.groups, prod(rest))
    return GROUP_NORM, (images, channels, step.groups, positions)


def _product_sizes(step: Step) -> tuple[int, ...]:
    left, right = step.operands[-2:]
    batch, rows, summed = _batched(left.shape)
    return batch, rows, summed, _batched(right.shape)[2]


def _grouped(kind: str, run: _Run, members: Sequence[int], sizes: tuple[int, ...]) -> Operation:
    steps = [run.steps[number] for number in members]
    memories = {step.memory for step in steps}
    outside = {
        (operand.memory, operand.shape): operand.read_bytes
        for step in steps
        for operand in step.operands
        if operand.memory not in memories
    }
    last = steps[-1]
    return Operation(
        kind,
        last.shape,
        last.dtype,
        sum(outside.values()),
        last.written_bytes,
        tuple(step.name for step in steps),
        sum(step.read_bytes + step.written_bytes for step in steps),
        sizes,
    )


def _is_activation(step: Step) -> bool:
    return step.name.removesuffix("_") in ACTIVATIONS


def _batched(shape: tuple[int, ...]) -> tuple[int, int, int]:
    return prod(shape[:-2]), shape[-2], shape[-1]
