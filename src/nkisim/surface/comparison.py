"""Comparing the golden table with the modules that nkisim puts in NKI's place."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from inspect import Parameter
from typing import Any, Final, Literal

from nkisim.enums import engine
from nkisim.memory.layout import MemoryRegion
from nkisim.nki.versions import modules_of
from nkisim.numerics import dtypes
from nkisim.numerics.operators.operator import Operator
from nkisim.refusal import refusal_of
from nkisim.running.api_version import DEFAULT, NkiVersion
from nkisim.surface.golden import Name, golden_names

Status = Literal["implemented", "refused", "missing"]

_MODULES: Final = ("nki.language", "nki.isa", "nki.collectives", "nki.framework.kernel", "nki")
_TYPES: Final[dict[str, type]] = {"DType": str, "MemoryRegion": MemoryRegion, "engine": engine}
_UNDOCUMENTED: Final = "..."  # the stubs leave a default out


@dataclass(frozen=True)
class Row:
    """What became of one name. A name that a call written for NKI does not fit is missing."""

    name: str
    status: Status
    note: str


def compare(version: NkiVersion = DEFAULT) -> tuple[Row, ...]:
    """One row for every name of the version's golden table."""
    return tuple(_judge(name, version) for name in golden_names(version))


def summary(rows: tuple[Row, ...]) -> str:
    """`implemented N, refused M, missing K`."""
    kinds = ("implemented", "refused", "missing")
    return ", ".join(f"{kind} {sum(row.status == kind for row in rows)}" for kind in kinds)


def table(rows: tuple[Row, ...]) -> str:
    """Columns name, status, note, and the summary as the last line."""
    width = max(len(row.name) for row in rows)
    lines = [f"{row.name:<{width}}  {row.status:<11}  {row.note}".rstrip() for row in rows]
    return "\n".join([f"{'name':<{width}}  {'status':<11}  note", *lines, summary(rows)])


def offered(name: str, version: NkiVersion = DEFAULT) -> Any:
    """What nkisim has under a dotted name of NKI; AttributeError if nothing."""
    module = next(prefix for prefix in _MODULES if name.startswith(f"{prefix}."))
    found = modules_of(version)[module]
    return reduce(getattr, name.removeprefix(f"{module}.").split("."), found)


def parameters_of(function: Any, *, method: bool = False) -> tuple[str, ...]:
    """A signature as the golden table writes it: "x", "dtype=None", "*producers"."""
    return tuple(_parameter_texts(function, method=method))


def _parameter_texts(function: Any, *, method: bool) -> Iterator[str]:
    parameters = list(inspect.signature(function).parameters.values())
    starred = False
    for parameter in parameters[1:] if method else parameters:
        if parameter.kind is Parameter.KEYWORD_ONLY and not starred:
            yield "*"
        starred = starred or parameter.kind in {Parameter.KEYWORD_ONLY, Parameter.VAR_POSITIONAL}
        yield _parameter_text(parameter)


def _parameter_text(parameter: Parameter) -> str:
    if parameter.kind is Parameter.VAR_POSITIONAL:
        return f"*{parameter.name}"
    if parameter.kind is Parameter.VAR_KEYWORD:
        return f"**{parameter.name}"
    if parameter.default is Parameter.empty:
        return parameter.name
    return f"{parameter.name}={_default_text(parameter.default)}"


def _default_text(value: Any) -> str:
    """A default as NKI's stubs write it."""
    if isinstance(value, MemoryRegion):
        return value.name
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, Operator):
        return value.name
    return value if value in dtypes.ALL else repr(value)


def _judge(name: Name, version: NkiVersion) -> Row:
    try:
        found = offered(name.name, version)
    except AttributeError:
        return Row(name.name, "missing", "nkisim does not have it")
    difference = _difference(name, found)
    if difference:
        return Row(name.name, "missing", difference)
    refusal = refusal_of(found)
    if refusal:
        return Row(name.name, "refused", refusal.reason)
    if name.withdrawn:
        return Row(name.name, "refused", name.withdrawn)
    shown = "" if name.parameters is None else f"({', '.join(name.parameters)})"
    note = f"{shown} carried over from 0.6" if name.carried_over else shown
    return Row(name.name, "implemented", note.strip())


def _difference(name: Name, offer: Any) -> str | None:
    """How what nkisim offers differs from the record, or None."""
    if name.parameters is not None:
        ours = parameters_of(offer, method=name.kind == "method")
        if not _same_parameters(name.parameters, ours):
            return f"parameters ({', '.join(ours)}) differ from ({', '.join(name.parameters)})"
    if name.type is not None and not isinstance(offer, _TYPES[name.type]):
        return f"{offer!r} is not a {name.type}"
    if name.value is not None and repr(offer.value) != name.value:
        return f"its value {offer.value!r} differs from {name.value}"
    if name.kind in {"class", "enum"} and not isinstance(offer, type):
        return f"{offer!r} is not a class"
    return None


def _same_parameters(golden: tuple[str, ...], ours: tuple[str, ...]) -> bool:
    if len(golden) != len(ours):
        return False
    pairs = zip(golden, ours, strict=True)
    return all(_same_parameter(theirs, own) for theirs, own in pairs)


def _same_parameter(theirs: str, ours: str) -> bool:
    name, _, default = theirs.partition("=")
    if default == _UNDOCUMENTED:
        return ours.startswith(f"{name}=")
    return theirs == ours
