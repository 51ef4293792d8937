"""Every overload of every operator that a patched model records, with arguments.

A sample is written for each overload that computes something new (`add.Tensor`); those that write
into `out` or in place get the arguments of the one they belong to, which their schema names.
"""

from dataclasses import dataclass

import torch

from trnconv.pytorch.lazy.movements import RECORDED

VIDEO, IMAGES = (1, 4, 3, 4, 5), (3, 4, 4, 5)


@dataclass(frozen=True)
class Operands:
    """What a model has at hand: a tensor, another of its shape, and the weight of a convolution."""

    x: torch.Tensor
    y: torch.Tensor
    w: torch.Tensor


def _sides(o):
    return [1, 0, 0, 1, *([1, 1] if o.x.dim() == 5 else [])]


def _doubled(o):
    return [2 * size for size in o.x.shape[2:]]


def _all_doubled(o):
    return [2.0] * (o.x.dim() - 2)


def _conv(o):
    axes = [1] * (o.x.dim() - 2)
    return (o.x, o.w, None, axes, axes, axes, False, [0] * len(axes), 1)


SAMPLES = {
    "cat": lambda o: ([o.x, o.y], 2),
    "constant_pad_nd": lambda o: (o.x, _sides(o)),
    "repeat": lambda o: (o.x, [*[1] * (o.x.dim() - 3), 2, 1, 1]),
    "clone": lambda o: (o.x,),
    "_to_copy": lambda o: (o.x, {"dtype": torch.float64}),
    "replication_pad2d": lambda o: (o.x, [1, 0, 2, 1]),
    "replication_pad3d": lambda o: (o.x, [1, 0, 2, 1, 1, 0]),
    "reflection_pad2d": lambda o: (o.x, [1, 0, 2, 1]),
    "reflection_pad3d": lambda o: (o.x, [1, 0, 2, 1, 1, 0]),
    **{
        name: lambda o: (o.x, _doubled(o))
        for name in (
            "upsample_nearest2d", "upsample_nearest3d",
            "_upsample_nearest_exact2d", "_upsample_nearest_exact3d",
        )
    },
    **{
        name: lambda o: (o.x, None, _all_doubled(o))
        for name in (
            "upsample_nearest2d.vec", "upsample_nearest3d.vec",
            "_upsample_nearest_exact2d.vec", "_upsample_nearest_exact3d.vec",
        )
    },
    "empty.memory_format": lambda o: (list(o.x.shape),),
    "zeros": lambda o: (list(o.x.shape),),
    "empty_like": lambda o: (o.x,),
    "zeros_like": lambda o: (o.x,),
    "new_empty": lambda o: (o.x, list(o.x.shape)),
    "new_zeros": lambda o: (o.x, list(o.x.shape)),
    "copy": lambda o: (o.x, o.y),
    "convolution": _conv,
    "add.Tensor": lambda o: (o.x, o.y, {"alpha": 0.5}),
    "add.Scalar": lambda o: (o.x, 1.5),
    "leaky_relu": lambda o: (o.x, 0.25),
    "elu": lambda o: (o.x,),
    **{name: lambda o: (o.x,) for name in ("silu", "relu", "tanh", "sigmoid")},
    "linalg_vector_norm": lambda o: (o.x, 2, [1], True),
    "pow.Tensor_Scalar": lambda o: (o.x, 2),
    "pow.Tensor_Tensor": lambda o: (o.x.abs(), o.y),
    "pow.Scalar": lambda o: (2, o.x),
    "mean": lambda o: (o.x,),
    "mean.dim": lambda o: (o.x, [1], True),
    "clamp_min": lambda o: (o.x, 0.1),
    "clamp_min.Tensor": lambda o: (o.x, o.y),
    "sqrt": lambda o: (o.x.abs(),),
    "rsqrt": lambda o: (o.x.abs() + 1,),
    "div.Tensor": lambda o: (o.x, o.y),
    "div.Scalar": lambda o: (o.x, 4),
    "div.Tensor_mode": lambda o: (o.x, o.y, {"rounding_mode": None}),
    "div.Scalar_mode": lambda o: (o.x, 4, {"rounding_mode": None}),
    "mul.Tensor": lambda o: (o.x, o.y),
    "mul.Scalar": lambda o: (o.x, 4),
    **{
        f"{name}.{kind}": (lambda o: (o.x, o.y)) if kind == "Tensor" else (lambda o: (o.x, 0.25))
        for name in ("le", "lt", "ge", "gt")
        for kind in ("Tensor", "Scalar")
    },
    "where.self": lambda o: (o.x > 0, o.x, o.y),
    "where.ScalarSelf": lambda o: (o.x > 0, 0.5, o.y),
    "where.ScalarOther": lambda o: (o.x > 0, o.x, 0.5),
    "where.Scalar": lambda o: (o.x > 0, 0.5, 0.25),
    "where": lambda o: (o.x > 0,),
    "full": lambda o: (list(o.x.shape), 0.5),
    "fill.Scalar": lambda o: (o.x, 0.5),
    "fill.Tensor": lambda o: (o.x, torch.tensor(0.5)),
}  # fmt: skip
UNWRITTEN = ("empty", "new_empty", "empty_like")  # their values are anybody's


def operators():
    """Names of the operators that have a record, without their overloads: cat, copy_, ..."""
    names = (key.removeprefix("aten::").split(".")[0] for key in RECORDED)
    return list(dict.fromkeys(name.removesuffix("_") for name in names))


def overloads(name):
    """All overloads of an operator, and of its variant in place, that take tensors."""
    found = []
    for variant in (name, f"{name}_"):
        packet = getattr(torch.ops.aten, variant, None)
        for each in packet.overloads() if packet is not None else ():
            qualified = f"aten::{variant}" if each == "default" else f"aten::{variant}.{each}"
            if torch._C._dispatch_has_kernel(qualified):  # TorchScript alone has the others
                found.append(getattr(packet, each))
    return found


def base_of(overload):
    """The overload that an overload is the same as, but for where the result is written."""
    name = overload._schema.name.removeprefix("aten::").removesuffix("_")
    read = [argument.name for argument in overload._schema.arguments if not _is_out(argument)]
    types = [str(argument.type) for argument in overload._schema.arguments if not _is_out(argument)]
    for key in SAMPLES:
        operator, _, kind = key.partition(".")
        if operator != name:
            continue
        packet = getattr(torch.ops.aten, operator)
        arguments = getattr(packet, kind or "default")._schema.arguments
        known = {argument.name: str(argument.type) for argument in arguments}
        if all(known.get(label) == kind_of for label, kind_of in zip(read, types, strict=True)):
            return key
    return None


def _is_out(argument):
    return argument.alias_info is not None and argument.alias_info.is_write and argument.kwarg_only


def written_by_keyword(overload):
    """Names of the arguments that it writes its results into."""
    return [each.name for each in overload._schema.arguments if _is_out(each)]


def call(overload, operands, **out):
    """The overload on the sample of its base."""
    sample = SAMPLES[base_of(overload)](operands)
    args, kwargs = sample, {}
    if isinstance(sample[-1], dict):
        args, kwargs = sample[:-1], sample[-1]
    known = {argument.name for argument in overload._schema.arguments}
    return overload(*args, **{key: kwargs[key] for key in kwargs if key in known}, **out)


def operands_of(x, y, w):
    return Operands(x, y, w)
