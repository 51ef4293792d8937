"""Machines with measured constants: a file that a calibration on a device wrote.

The file says which machine, which constants with their unit and spread, and on which host, with
which SDK and when they were measured. A machine made of it has a name of its own, so that a plan or
a time by it never passes for one by published numbers.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from nkisim.errors import NkiValidationError
from nkisim.machine import MACHINES, Machine, Timing, find_machine, register
from nkisim.machine_workarounds import MEASURED, SEPARATOR, with_workarounds

_SAID = ("machine", "host", "sdk", "date", "constants")
_DIGITS = 8
_FILES = ".json"


def read_machine(path: Path) -> Machine:
    """The machine of a file of measured constants, known to `find_machine` from now on."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _refused(path, f"it cannot be read: {error}") from error
    return machine_of(document, path)


def machine_of(document: dict[str, Any], path: Path) -> Machine:
    """The same of what such a file says."""
    missing = [name for name in _SAID if name not in document]
    if missing:
        raise _refused(path, f"it does not say {', '.join(missing)}")
    if document["machine"] not in MACHINES:
        raise _refused(path, f"a machine {document['machine']!r}, not one of {', '.join(MACHINES)}")
    base = find_machine(document["machine"])
    values = {name: float(constant["value"]) for name, constant in document["constants"].items()}
    unknown = sorted(set(values) - set(Timing.__dataclass_fields__))
    if unknown:
        raise _refused(path, f"constants {', '.join(unknown)}, which no machine has")
    changes: Any = values
    kind = document.get("kind", "measured")
    words = (
        f"{len(values)} of them {kind} on {document['host']}, SDK {document['sdk']},"
        f" {document['date']}"
    )
    digest = hashlib.blake2b(json.dumps(document, sort_keys=True).encode()).hexdigest()[:_DIGITS]
    return register(
        replace(
            base,
            name=f"{base.name}{MEASURED}{kind}-{digest}",
            timing=replace(base.timing, **changes),
            measured=words,
        )
    )


def is_file(name: str) -> bool:
    """Whether a machine is given by a file of measured constants, and not by its name."""
    return name.endswith(_FILES) or f"{_FILES}{SEPARATOR}" in name


def named_machine(name: str) -> Machine:
    """A machine by its name, or by a file of measured constants; workarounds may follow either."""
    if not is_file(name):
        return find_machine(name)
    file, _, workarounds = name.partition(f"{_FILES}{SEPARATOR}")
    if not workarounds:
        return read_machine(Path(name))
    return with_workarounds(read_machine(Path(f"{file}{_FILES}")), *workarounds.split(SEPARATOR))


def _refused(path: Path, why: str) -> NkiValidationError:
    return NkiValidationError(
        f"measured constants of {path}: {why}",
        limit="a file that `trnconv bringup --stage 4` wrote",
        remedy="run it again on the device",
    )
