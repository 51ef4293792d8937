"""StepLog: every operator that a model runs, in order. It works on the meta device.

What a patched model only notes is no step; what it then does is, its convolutions included.
"""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trnconv.problem.epilogue import IDENTITY
from trnconv.pytorch.backends.arrays import dtype_name
from trnconv.pytorch.lazy.base.stats import PatchStats
from trnconv.pytorch.lazy.base.traits import Traits, parts, tensors_in, traits_of
from trnconv.pytorch.lazy.movements import bytes_read
from trnconv.pytorch.operators.attention import ATTENTION_OP
from trnconv.pytorch.operators.norm_call import (
    FRAME_GROUPS,
    GROUPS,
    ModulationCall,
    NormCall,
    worded_modulation,
    worded_norm,
)
from trnconv.pytorch.operators.norms import FACTORS_OP, MODULATION_OP, NORM_OP
from trnconv.traces.operation import GROUP_NORM_STEP, RMS_NORM_STEP
from trnconv.traces.step import (
    ATTENDING,
    CONVOLUTION,
    FILL,
    MOVEMENT,
    NORM,
    POINTWISE,
    PRODUCT,
    REDUCTION,
    SOFTMAX,
    Operand,
    Step,
)

Tensor = torch.Tensor
_OURS = "trnconv"
_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "matmul", "linear")
_NOTHING = ("empty", "new_empty")  # memory, and no values
_MOVES = ("clone", "copy_")  # torch calls them pointwise


class StepLog(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes what runs inside of it, with the module that the stats say is running."""

    def __init__(self, stats: PatchStats) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.steps: list[Step] = []
        self._stats = stats
        self._written = 0  # memories so far
        self._known: dict[int, tuple[weakref.ref[Any], int]] = {}  # by storage

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run the operator, and note it unless it is a view."""
        del types
        given = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload):  # noqa: SLF001
            return func(*args, **given)
        if traits_of(func).composite:
            with self:
                return parts(func, *args, **given)
        operands = tuple(self._operand(tensor) for tensor in tensors_in((args, given)))
        result = func(*args, **given)
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        if made and not traits_of(func).view and not func.__name__.startswith(_NOTHING):
            self._note(func, args, operands, made[0])
        return result

    def _note(
        self, func: Any, args: tuple[Any, ...], operands: tuple[Operand, ...], made: Tensor
    ) -> None:
        traits = traits_of(func)
        name = traits.name.partition("::")[2]
        if name == "copy_":
            operands = operands[1:]  # what is overwritten is not read
        step = Step(
            name,
            _role(func, traits, name, operands),
            self._stats.module,
            operands,
            self._newly_written(made),
            tuple(made.shape),
            dtype_name(made),
            made.nbytes,
            args[6] if name == "native_group_norm" else 1,
        )
        if traits.name in (NORM_OP, FACTORS_OP):
            step = replace(step, dtype=dtype_name(args[0]))  # factors are float32
            step = _as_norm(step, worded_norm(args[3]), of_x=traits.name == NORM_OP)
        if traits.name == MODULATION_OP:
            step = _as_modulation(step, worded_modulation(args[4]))
        if traits.name == ATTENTION_OP:
            batch, tokens, head = step.shape
            step = replace(step, role=ATTENDING, sizes=(batch, tokens, tokens, head, 0, args[3]))
        self.steps.append(step)

    def _operand(self, tensor: Tensor) -> Operand:
        return Operand(self._memory(tensor), tuple(tensor.shape), bytes_read(tensor))

    def _memory(self, tensor: Tensor) -> int:
        storage = tensor.untyped_storage()
        known = self._known.get(storage._cdata)  # noqa: SLF001 (no public identity)
        if known is not None and known[0]() is not None:
            return known[1]
        return self._newly_written(tensor)

    def _newly_written(self, tensor: Tensor) -> int:
        storage = tensor.untyped_storage()
        self._written += 1
        self._known[storage._cdata] = (weakref.ref(storage), self._written)  # noqa: SLF001
        return self._written


def _as_norm(step: Step, call: NormCall, *, of_x: bool) -> Step:
    """A norm of ours, as its kernels know it; or, if it is not one of x, the factors of one."""
    known = replace(
        step,
        role=NORM,
        groups=call.groups,
        activation="" if call.activation == IDENTITY else call.activation,
    )
    if not of_x:
        return known
    n, c, t, *plane = step.shape
    x, *weights = step.operands
    return replace(
        known,
        name=GROUP_NORM_STEP if call.kind in (GROUPS, FRAME_GROUPS) else RMS_NORM_STEP,
        operands=(replace(x, read_bytes=step.written_bytes), *weights),  # x may have more frames
        shape=(n * t, c, 1, *plane) if call.kind == FRAME_GROUPS else step.shape,
    )


def _as_modulation(step: Step, call: ModulationCall) -> Step:
    c, _, h, w = step.shape[1:]
    return replace(
        step,
        role=NORM,
        activation="" if call.activation == IDENTITY else call.activation,
        sizes=(c, h, w, call.factor, *call.frame_map),
    )


def _role(func: Any, traits: Traits, name: str, operands: tuple[Operand, ...]) -> str:
    """What kind of step it is, by what torch says about its operators where it does."""
    cases = (
        (CONVOLUTION, traits.name.startswith(_OURS)),
        (PRODUCT, name in _PRODUCTS),
        (SOFTMAX, name.endswith("softmax")),
        (NORM, name.startswith("native_") and name.endswith("_norm")),
        (FILL, not operands),
        (REDUCTION, torch.Tag.reduction in func.tags),
        (POINTWISE, name == "_to_copy"),
        (POINTWISE, torch.Tag.pointwise in func.tags and name not in _MOVES),
    )
    return next((role for role, is_so in cases if is_so), MOVEMENT)
