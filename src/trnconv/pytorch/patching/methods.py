"""The methods a patched instance gets in place of its class's."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.nn.utils.weight_norm import WeightNorm
from torch.utils._pytree import tree_leaves

from trnconv.errors import UnsupportedError
from trnconv.geometry import ZEROS
from trnconv.pytorch import functional
from trnconv.pytorch.functional.padded_input import padded_input
from trnconv.pytorch.lazy.base.bypass import is_passing, passing
from trnconv.pytorch.lazy.convolutions.counts import count_transposed
from trnconv.pytorch.lazy.convolutions.filters import Filters
from trnconv.pytorch.lazy.exits import convolved_now, made_plain
from trnconv.pytorch.lazy.fusion.convolution import convolved, unsupported_type
from trnconv.pytorch.lazy.fusion.epilogues import eager, value_of
from trnconv.pytorch.lazy.session import (
    GRADIENTS,
    foreign_kind,
    inside,
    is_half,
    is_transformed,
    session,
    why_eager,
)
from trnconv.pytorch.lazy.tensors.autograd import plain_of
from trnconv.pytorch.lazy.tensors.context import PatchContext
from trnconv.pytorch.lazy.tensors.strides import format_of_result
from trnconv.pytorch.patching.shallow_copies import state_of

Tensor = torch.Tensor
ATTRIBUTE = "_trnconv"
GETSTATE = "__getstate__"
SCRIPTED = "__prepare_scriptable__"  # what torch.jit.script calls of every module, if it is there


@dataclass
class Patch:
    """What a patched module carries."""

    name: str  # dotted
    context: PatchContext
    before: dict[str, Any]  # attributes of the instance that ours replaced
    methods: list[str]  # ours
    reason: str = ""  # why it is left to torch; empty if it is patched
    # The class's own functions: dynamo does not find them by the class.
    own: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """Without functions, which a decorator may have made unpicklable: the class has them."""
        return {**vars(self), "own": {}}


class Bound:
    """A function as a method of an instance. Unlike Python's bound methods, it can be pickled."""

    def __init__(self, function: Callable[..., Any], module: torch.nn.Module, method: str) -> None:
        self.function = function
        self.module = module
        self.method = method

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function, with the instance first."""
        return self.function(self.module, *args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        """That of the method it stands in for."""
        patch: Patch = self.module.__dict__[ATTRIBUTE]
        if self.method in patch.before:
            return inspect.signature(patch.before[self.method])
        return inspect.signature(getattr(type(self.module), self.method).__get__(self.module))

    @property
    def __code__(self) -> Any:
        """Of the method it stands in for: torch.export asks where a model is written."""
        method = getattr(type(self.module), self.method)
        return inspect.unwrap(method).__code__


class WayIn(Bound):
    """A way into a model besides its forward: a method that encodes or decodes."""

    def __init__(self, module: torch.nn.Module, method: str) -> None:
        super().__init__(module_forward, module, method)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The method itself, on lazy tensors."""
        return entered(self.module, self.method, args, kwargs)


class HookedCall:
    """In place of `_call_impl` of a module with hooks: they see plain tensors."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As torch's, on tensors that are made."""
        if not torch.compiler.is_compiling():
            args, kwargs = made_plain((args, kwargs))
        own: Any = type(self.module)._call_impl  # noqa: SLF001 (what torch's __call__ calls)
        return own(self.module, *args, **kwargs)


def module_forward(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    """The module's own forward, on lazy tensors."""
    return entered(self, "forward", args, kwargs)


def entered(module: torch.nn.Module, method: str, args: Any, kwargs: Any) -> Any:
    """A method of a patched model as it is. The outermost of a model begins a session."""
    if torch.compiler.is_compiling():  # before all else: dynamo traces no further
        return unpatched(module, method, args, kwargs)
    patch: Patch = module.__dict__[ATTRIBUTE]
    context = patch.context
    if is_passing() or not context.lazy:
        return unpatched(module, method, args, kwargs)
    if inside(context):
        with context.stats.inside(patch.name):
            result = unpatched(module, method, args, kwargs)
        if has_hooks(module):
            return made_plain(result)
        return convolved_now(result) if is_half(patch.name) else result
    reason = GRADIENTS if wants_gradient(module, args, kwargs) else why_eager(args, kwargs)
    if reason:
        context.stats.eager[reason] += 1
        return unpatched(module, method, args, kwargs)
    watch_hooks(module, context)
    by_halves = method != "forward"
    arguments = (args, kwargs)
    with (
        session(module, context, arguments, by_halves=by_halves) as results,
        context.stats.inside(patch.name),
    ):
        results.append(unpatched(module, method, args, kwargs))
    return made_plain(results[0])


def unpatched(module: torch.nn.Module, method: str, args: Any, kwargs: Any) -> Any:
    """The method as it was before the patch."""
    patch: Patch = module.__dict__[ATTRIBUTE]
    if method in patch.before:
        return patch.before[method](*args, **kwargs)
    own = patch.own.get(method) or getattr(type(module), method)
    return own(module, *args, **kwargs)


def watch_hooks(model: torch.nn.Module, context: PatchContext) -> None:
    """Modules that have got hooks since the model was patched show them plain tensors."""
    for name, module in model.named_modules():
        if not has_hooks(module) or isinstance(module.__dict__.get("_call_impl"), HookedCall):
            continue
        module.__dict__["_call_impl"] = HookedCall(module)
        if ATTRIBUTE not in module.__dict__:
            put(module, Patch(name, context, {}, []), "forward", module_forward)


def put(
    module: torch.nn.Module, patch: Patch, method: str, ours: Callable[..., Any] | None
) -> None:
    """A method of ours in place of the instance's; without one, a way into the model."""
    if method in module.__dict__:
        patch.before[method] = module.__dict__[method]
    module.__dict__[ATTRIBUTE] = patch
    bound = WayIn(module, method) if ours is None else Bound(ours, module, method)
    module.__dict__[method] = bound
    patch.methods.append(method)
    patch.own[method] = getattr(type(module), method)
    if GETSTATE not in module.__dict__:
        module.__dict__[GETSTATE] = Bound(carried_state, module, GETSTATE)
        patch.methods.append(GETSTATE)
    if SCRIPTED not in module.__dict__:
        module.__dict__[SCRIPTED] = Bound(refused_script, module, SCRIPTED)
        patch.methods.append(SCRIPTED)


def carried_state(self: torch.nn.Module) -> Any:
    """For `copy` and `pickle`."""
    patch: Patch = self.__dict__[ATTRIBUTE]
    return state_of(self, {ATTRIBUTE, "_call_impl", *patch.methods}, patch.before)


def refused_script(self: torch.nn.Module) -> Any:
    """A script is compiled from classes; it would have torch's convolutions, and say nothing."""
    patch: Patch = self.__dict__[ATTRIBUTE]
    raise UnsupportedError(
        f"torch.jit.script of a patched model ({patch.name or 'all of it'}): scripts are compiled"
        " from a module's class, and the methods of patched modules are on instances. Script the"
        " unpatched model (unpatch_), or use torch.compile, torch.export or torch.jit.trace."
    )


def has_hooks(module: torch.nn.Module) -> bool:
    """Whether somebody looks at what goes in or comes out.

    torch's older weight_norm is a hook that does not: it makes a new weight for every call.
    """
    both = (module._forward_hooks, module._forward_pre_hooks)  # noqa: SLF001 (torch's names)
    return any(not isinstance(hook, WeightNorm) for hooks in both for hook in hooks.values())


def is_managed(module: torch.nn.Module) -> bool:
    """Whether somebody may take its weights away as soon as it returns."""
    forward = module.__dict__.get("forward")
    return has_hooks(module) or not (forward is None or isinstance(forward, Bound))


def wants_gradient(module: torch.nn.Module, args: Any, kwargs: Any) -> bool:
    """Then the model runs as it is, on convolutions that have gradients."""
    if not torch.is_grad_enabled():
        return False
    given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    return any(tensor.requires_grad for tensor in (*given, *module.parameters()))


def convolution_forward(
    self: Any,
    input: Tensor,  # noqa: A002 (torch's name)
    weight: Tensor,
    bias: Tensor | None,
) -> Tensor:
    """In place of `_conv_forward` of torch's convolutions."""
    patch: Patch = self.__dict__[ATTRIBUTE]
    if not isinstance(input, Tensor):  # torch's refuses, or it is fx's
        refused: Tensor = unpatched(self, "_conv_forward", (input, weight, bias), {})
        return refused
    weight, bias = _made(weight), _made(bias)
    if reason := unsupported_type(weight.dtype):
        return _left_to_torch(self, reason, (input, weight, bias))
    if torch.compiler.is_compiling():
        return at_once(self, input, weight, bias)
    context = patch.context
    if not context.lazy or _wants(input, weight, bias) or _is_foreign(context, input, weight):
        return at_once(self, input, weight, bias)
    padded = padded_input(self, input)
    filters = Filters(
        weight,
        bias,
        stride=self.stride,
        padding=padded.padding,
        dilation=self.dilation,
        groups=self.groups,
        mode=padded.mode,
        module=patch.name,
    )
    result: Tensor | None = convolved(padded.x, filters, context)
    if result is None:
        return eager(value_of(padded.x), filters, context)
    if not inside(context) or is_managed(self):
        result = made_plain(result)
    return result


def _made(tensor: Any) -> Any:
    """A weight that may have been made inside of the run, as parametrizations make it."""
    return tensor if torch.compiler.is_compiling() else plain_of(tensor)


def _is_foreign(context: PatchContext, x: Tensor, weight: Tensor) -> bool:
    """Whether a convolution has to run at once, inside of a session or outside of one."""
    if not inside(context):
        return bool(why_eager((x, weight), {}))
    return is_transformed() or bool(foreign_kind((x, weight)))


def unsplit_forward(
    self: torch.nn.Conv3d,
    input: Tensor,  # noqa: A002 (as in the classes)
    write_to: Tensor | None = None,
) -> Tensor:
    """torch's own forward, for a subclass that would split the input first.

    KVAE's takes a tensor to put the result in.
    """
    y = torch.nn.Conv3d.forward(self, input)
    return y if write_to is None else write_to.copy_(y)


def _wants(*tensors: Tensor | None) -> bool:
    asked = any(tensor is not None and tensor.requires_grad for tensor in tensors)
    return torch.is_grad_enabled() and asked


def at_once(module: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """With gradients, in one graph."""
    rank = weight.dim() - 2
    convolve = getattr(functional, f"conv{rank}d")
    patch: Patch = module.__dict__[ATTRIBUTE]
    padded = padded_input(module, x)
    y: Tensor = convolve(
        padded.x,
        weight,
        bias,
        module.stride,
        padded.padding,
        module.dilation,
        module.groups,
        padding_mode=padded.mode,
        accuracy=patch.context.policy_for(patch.name),
        backend=patch.context.backend,
    )
    if torch.compiler.is_compiling() or is_transformed() or x.dim() != weight.dim():
        return y
    filters = Filters(
        weight, None, module.stride, padded.padding, module.dilation, module.groups, padded.mode
    )
    return y.contiguous(memory_format=format_of_result(x, weight, filters.options))


def _left_to_torch(
    module: Any, reason: str, operands: tuple[Tensor, Tensor, Tensor | None]
) -> Tensor:
    """A convolution whose weights were cast since, to what kernels do not take."""
    if torch.compiler.is_compiling():
        compiled: Tensor = unpatched(module, "_conv_forward", operands, {})
        return compiled
    patch: Patch = module.__dict__[ATTRIBUTE]
    patch.context.stats.left_to_torch[patch.name, reason] += 1
    with passing():
        y: Tensor = unpatched(module, "_conv_forward", tuple(map(value_of, operands)), {})
    return y


def torch_forward(self: Any, *args: Any, **kwargs: Any) -> Any:
    """The module's own method, as it is."""
    patch: Patch = self.__dict__[ATTRIBUTE]
    method = patch.methods[0]
    if torch.compiler.is_compiling():
        return unpatched(self, method, args, kwargs)
    patch.context.stats.left_to_torch[patch.name, patch.reason] += 1
    with patch.context.stats.inside(patch.name):
        return unpatched(self, method, args, kwargs)


def transposed_forward(
    self: Any,
    input: Tensor,  # noqa: A002 (torch's name)
    output_size: list[int] | None = None,
) -> Tensor:
    """In place of `forward` of torch's transposed convolutions. As there, it reads weights once."""
    takes = self.padding_mode == ZEROS and isinstance(self.padding, tuple)
    if not (takes and isinstance(input, Tensor)):  # torch's refuses, or it is fx's
        refused: Tensor = unpatched(self, "forward", (input, output_size), {})
        return refused
    x, rank = _made(input), len(self.kernel_size)
    added = self._output_padding(
        x, output_size, self.stride, self.padding, self.kernel_size, rank, self.dilation
    )
    weight, bias = _made(self.weight), _made(self.bias)
    options = (self.stride, self.padding, added, self.groups, self.dilation)
    return _transposed(self.__dict__[ATTRIBUTE], (x, weight, bias), options)


def _transposed(
    patch: Patch, operands: tuple[Tensor, Tensor, Tensor | None], options: tuple[Any, ...]
) -> Tensor:
    x, weight, _ = operands
    name = f"conv_transpose{weight.dim() - 2}d"
    reason = unsupported_type(weight.dtype)
    ours: Any = partial(getattr(functional, name), backend=patch.context.backend)
    convolve = getattr(torch.nn.functional, name) if reason else ours
    if torch.compiler.is_compiling():
        compiled: Tensor = convolve(*operands, *options)
        return compiled
    stats = patch.context.stats
    if reason:
        stats.left_to_torch[patch.name, reason] += 1
    with passing():
        y: Tensor = convolve(*operands, *options)
    if not (reason or torch.jit.is_tracing()) and y.numel():  # type: ignore[attr-defined,no-untyped-call]
        count_transposed(stats, patch.name, x, weight, None, *options)
    return y
