"""What is known of a host: workarounds that probes asked for, constants that were measured.

One JSON file a host: the one that TRNCONV_HOST names, else one in the cache folder.
"""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass, replace
from pathlib import Path

from nkisim.machine import Machine, find_machine
from nkisim.machine_workarounds import with_workarounds
from nkisim.measured_machine import read_machine
from trnconv.cache import cache_folder
from trnconv.errors import UnsupportedError
from trnconv.host.workarounds import of_machine, require_known
from trnconv.records import RecordError, from_json, to_json

ENVIRONMENT = "TRNCONV_HOST"


@dataclass(frozen=True)
class HostRecord:
    """A host, the workarounds that are on there, and the file of its measured constants, if any."""

    host: str
    workarounds: tuple[str, ...] = ()
    measured: str = ""

    def with_workarounds(self, *names: str) -> HostRecord:
        """The same with more workarounds on."""
        return replace(self, workarounds=tuple(sorted(require_known({*self.workarounds, *names}))))

    def machine(self, target: str) -> Machine:
        """A machine as this host's probes found it: with workarounds, with what was measured."""
        base = find_machine(target)
        if self.measured:
            measured = read_machine(Path(self.measured))
            base = measured if measured.base_name == target else base
        return (
            with_workarounds(base, *of_machine(self.workarounds))
            if of_machine(self.workarounds)
            else base
        )


def host_file() -> Path:
    """Where the record of this host is, or would be."""
    asked = os.environ.get(ENVIRONMENT)
    return Path(asked) if asked else cache_folder() / "hosts" / f"{platform.node()}.json"


def read_host(path: Path | None = None) -> HostRecord:
    """The record of this host; an empty one if nothing was stored."""
    file = host_file() if path is None else path
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return HostRecord(platform.node())
    except ValueError as error:
        raise _broken(file, str(error)) from error
    try:
        record = from_json(HostRecord, document)
    except RecordError as error:
        raise _broken(file, str(error)) from error
    require_known(record.workarounds)
    return record


def _broken(file: Path, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"the record of this host, {file}: {why} Remove it and run `trnconv bringup` again."
    )


def write_host(record: HostRecord, path: Path | None = None) -> Path:
    """Keep a record; the place it is in."""
    file = host_file() if path is None else path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(to_json(record), indent=1) + "\n", encoding="utf-8")
    return file
