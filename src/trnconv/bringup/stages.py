"""All stages by number, and a climb of some of them from the bench to the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from trnconv.bringup import stage0, stage1, stage2, stage3, stage4
from trnconv.bringup.ladder import Bench, Check, Climbed, Finding, climb
from trnconv.bringup.result import ResultFile
from trnconv.bringup.runner import SimulatedRunner, VendorRunner
from trnconv.errors import UnsupportedError
from trnconv.host.detect import DetectedHost
from trnconv.host.record import HostRecord
from trnconv.host.vendor import Vendor
from trnconv.host.workarounds import ONE_CORE

STAGES: Final[dict[int, Callable[[], tuple[Check, ...]]]] = {
    0: stage0.checks,
    1: stage1.checks,
    2: stage2.checks,
    3: stage3.checks,
    4: stage4.checks,
}
NKISIM, DEVICE = "nkisim", "device"


def bench_of(host: HostRecord, detected: DetectedHost, vendor: Vendor, on: str) -> Bench:
    """Where checks are run: in nkisim, or on the device by the vendor's nki."""
    cores = 1 if ONE_CORE in host.workarounds else detected.lnc
    machine, workarounds = host.machine(detected.target), frozenset(host.workarounds)
    if on == NKISIM:
        return Bench(machine, cores, SimulatedRunner(machine, cores), workarounds, vendor)
    if vendor.nki is None:
        raise UnsupportedError(
            "bringup on a device: `import nki` finds nkisim here, and no toolchain. Install the"
            " vendor's nki, or climb in the simulator with --on nkisim."
        )
    runner = VendorRunner(vendor.nki, cores, workarounds, where=vendor.nki_source)
    return Bench(machine, cores, runner, workarounds, vendor)


def climbed(
    stages: Sequence[int],
    bench: Bench,
    path: Path,
    *,
    restart: bool = False,
    retry: bool = False,
) -> Iterator[Climbed]:
    """The checks of some stages, in order, up to the first that is red; the file follows."""
    unknown = [stage for stage in stages if stage not in STAGES]
    if unknown:
        known = ", ".join(map(str, STAGES))
        raise UnsupportedError(f"stage {unknown[0]} of the bring-up: there are {known}.")
    file = ResultFile.opened(path, bench, restart=restart)
    bench = replace(bench, folder=path.parent)
    checks = [check for stage in stages for check in STAGES[stage]()]

    def kept(check: Check) -> Finding | None:
        return file.kept(check, bench.workarounds, retry=retry)

    for outcome in climb(checks, bench, kept, file.begin):
        file.end(outcome)
        yield outcome
