"""The golden tables: every public name of NKI 0.6 and 0.7 as facts, in JSON.

A record has the dotted name, its kind (function, class, method, attribute, enum, member, value),
and where it has them its parameters ("x", "dtype=None", "*producers"), its type or its value.
nki_0_6.json was read once off the signature stubs in the SDK's documentation. nki_0_7.json has what
was seen of 0.7: new names, and old ones with `seen`, the source that shows them again. All other
names of 0.6 are in the table of 0.7 too, as carried over.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from nkisim.running.api_version import DEFAULT, NkiVersion


@dataclass(frozen=True)
class Name:
    """One public name of NKI."""

    name: str
    kind: str
    parameters: tuple[str, ...] | None = None  # None: it cannot be called
    type: str | None = None
    value: str | None = None
    seen: str | None = None  # the source of 0.7 that shows it
    withdrawn: str | None = None  # why the version does not run it any more
    carried_over: bool = False  # it stands in the table of 0.7 because 0.6 had it


def golden_names(version: NkiVersion = DEFAULT) -> tuple[Name, ...]:
    """The table of a version, in the order of the stubs; new names at the end."""
    names = {record["name"]: _name(**record) for record in _records("nki_0_6.json")}
    if version == "0.6":
        return tuple(names.values())
    names = {key: replace(name, carried_over=True) for key, name in names.items()}
    for record in _records("nki_0_7.json"):
        known = names.get(record["name"])
        if known is None:
            names[record["name"]] = _name(**record)
        else:
            names[record["name"]] = replace(known, carried_over=False, **record)
    return tuple(names.values())


def _records(file: str) -> list[dict[str, Any]]:
    text = files("nkisim.surface").joinpath(file).read_text(encoding="utf-8")
    found: list[dict[str, Any]] = json.loads(text)
    return found


def _name(*, parameters: list[str] | None = None, **facts: str) -> Name:
    known: dict[str, Any] = facts
    return Name(parameters=None if parameters is None else tuple(parameters), **known)
