"""Processes below one that a test started: who they are, and whether they are still there."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from yardstick import limit_s


def parents():
    """The parent of every process of this machine."""
    found = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended while we looked
            fields = status.read_text().rpartition(")")[2].split()
            if fields[0] != "Z":
                found[int(status.parent.name)] = int(fields[1])
    return found


def descendants(process):
    """Children, their children, and so on."""
    known = parents()
    found, todo = set(), [process]
    while todo:
        parent = todo.pop()
        children = [child for child, its in known.items() if its == parent]
        found.update(children)
        todo += children
    return found


def wait_until(condition, seconds, what):
    """Look ten times a second; what was waited for, if the time is over."""
    end = time.monotonic() + limit_s(seconds)
    while not (value := condition()):
        assert time.monotonic() < end, f"{what}: not within {limit_s(seconds):.0f} s"
        time.sleep(0.1)
    return value


def kill(process):
    """End one process that the test started, at once; it may be gone already."""
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def listeners(processes):
    """Addresses, as the kernel writes them, at which these processes wait for connections."""
    sockets = set()
    for process in processes:
        for handle in Path(f"/proc/{process}/fd").glob("*"):
            with suppress(OSError):
                sockets.add(str(handle.readlink()))
    found = set()
    for kind in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                found.add(fields[1].partition(":")[0])
    return found
