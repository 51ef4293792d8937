"""Climbs of the ladder on doubles of the vendor's packages."""

from dataclasses import dataclass

from nki_double import CACHE_OFF, NkiDouble
from trnconv.bringup import stages
from trnconv.bringup.ladder import climb
from trnconv.host.detect import DetectedHost
from trnconv.host.record import HostRecord
from trnconv.host.vendor import Vendor


@dataclass(frozen=True)
class Stop:
    """Where a ladder ended, what it named, and what it said; Nones if it was climbed."""

    check: str | None
    workaround: str | None
    words: str = ""


def vendor_of(failures, lnc):
    return Vendor(nki=NkiDouble(failures, lnc=lnc), nki_source="nki 0.7.0 (a double)")


def bench_with(failures, workarounds, monkeypatch, vendor=None):
    """A device of doubles that fails so, with these workarounds on."""
    monkeypatch.setenv(CACHE_OFF, "0")
    lnc = 1 if "one-core" in workarounds else 2
    host = HostRecord("here").with_workarounds(*workarounds)
    detected = DetectedHost("trn2", "a test", lnc, "a test")
    return stages.bench_of(host, detected, vendor or vendor_of(failures, lnc), stages.DEVICE)


def stop_of(checks, bench):
    for climbed in climb(checks, bench):
        if climbed.stops:
            return Stop(climbed.check.name, climbed.workaround, climbed.finding.words)
    return Stop(None, None)
