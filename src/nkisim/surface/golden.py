"""The golden table: every public name of NKI 0.6 as facts, in nki_0_6.json.

A record has the dotted name, its kind (function, class, method, attribute, enum, member, value),
and where it has them its parameters ("x", "dtype=None", "*producers"), its type or its value. It
was read once off the signature stubs in the SDK's documentation.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class Name:
    """One public name of NKI."""

    name: str
    kind: str
    parameters: tuple[str, ...] | None = None  # None: it cannot be called
    type: str | None = None
    value: str | None = None


def golden_names() -> tuple[Name, ...]:
    """The table, in the order of the stubs."""
    text = files("nkisim.surface").joinpath("nki_0_6.json").read_text(encoding="utf-8")
    return tuple(_name(**record) for record in json.loads(text))


def _name(*, parameters: list[str] | None = None, **facts: str) -> Name:
    return Name(parameters=None if parameters is None else tuple(parameters), **facts)
