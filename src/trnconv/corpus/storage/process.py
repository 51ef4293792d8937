"""A process of some machine, and whether it is still there: who wrote a lease or half a file."""

from __future__ import annotations

import hashlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from time import time

_STARTED = 19  # of the fields after the name in /proc/<pid>/stat: ticks since the machine started


@dataclass(frozen=True)
class Process:
    """One process. A process id is used again; together with its start it is not."""

    machine: str  # host, its start, and its name space of process ids
    pid: int
    started: int  # ticks since the machine's start; 0 where that is not known

    def __str__(self) -> str:
        return f"{self.machine}-{self.pid}-{self.started}"

    @classmethod
    def parse(cls, text: str) -> Process | None:
        """The process of such a text; None if it is none."""
        machine, _, numbers = text.partition("-")
        pid, _, started = numbers.partition("-")
        if not (machine and pid.isdecimal() and started.isdecimal()):
            return None
        return cls(machine, int(pid), int(started))

    def is_gone(self) -> bool:
        """Whether it has certainly ended; of a process elsewhere nobody here can say."""
        if self.machine != _machine() or not self.started:
            return False
        return _started(self.pid) != self.started


def this_process() -> Process:
    """The one that asks."""
    return Process(_machine(), os.getpid(), _started(os.getpid()))


def started_at() -> float:
    """When this process began, in seconds since 1970; now, where that is not known."""
    ticks = _started(os.getpid())
    uptime = Path("/proc/uptime")
    if not ticks or not uptime.is_file():
        return time()
    age_s = float(uptime.read_text(encoding="ascii").split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
    return time() - age_s


def _machine() -> str:
    parts = [socket.gethostname()]
    for source in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        path = Path(source)
        if path.is_symlink():
            parts.append(str(path.readlink()))
        elif path.is_file():
            parts.append(path.read_text(encoding="ascii").strip())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _started(pid: int) -> int:
    """When a process began; 0 if it has ended, or this system does not say."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    fields = status.rpartition(")")[2].split()
    return 0 if fields[0] in "ZX" else int(fields[_STARTED])
