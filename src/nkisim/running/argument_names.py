"""Names of a kernel's arguments, and refusals of calls that do not fit its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nkisim.errors import ArgumentError
from nkisim.public_calls import meant


def positional_names(
    title: str, kernel: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[str]:
    """What the kernel calls each positional argument; refuses a call that it cannot take."""
    try:
        signature = inspect.signature(kernel)
    except (TypeError, ValueError):  # a callable that hides its parameters
        return [f"arg{number}" for number in range(len(args))]
    try:
        signature.bind(*args, **kwargs)
    except TypeError as problem:
        raise _unbound(title, signature, kwargs, problem) from None
    names: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}_{number}" for number in range(len(args) - len(names))]
        else:
            names.append(parameter.name)
    return names[: len(args)]


def _unbound(
    title: str, signature: inspect.Signature, kwargs: Mapping[str, Any], problem: TypeError
) -> ArgumentError:
    names = list(signature.parameters)
    unknown = next((name for name in kwargs if name not in names), None)
    remedy = None if unknown is None else meant(unknown, names)
    return ArgumentError(
        str(problem),
        instruction=title,
        limit=f"its parameters are {signature}",
        remedy=remedy or "pass what it takes",
    )
