"""Whether the rows of a band that need no halo are convolved while halos travel. Modelled.

Together: wait for the halo, put it beside the band (a copy of all of it), convolve. Apart: convolve
the band as it lies, padded as the whole is, while the halo travels; then convolve the boundaries at
its edges, and put their outputs over those that were padded at a cut. Execution and estimate both
ask here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import inf

from nkisim.fabric import FABRICS, Fabric
from nkisim.machine import TRN2, Machine, Reading
from trnconv.errors import TrnconvError
from trnconv.host.detect import detect
from trnconv.host.record import read_host
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.cores import cores_of
from trnconv.runtime.pricing import price

AUTO, ALWAYS, NEVER = "auto", "always", "never"
OVERLAPS = (AUTO, ALWAYS, NEVER)
_ASKED = 4096  # distinct convolutions of a process
_FASTEST = 4  # no fast algorithm has fewer multiplications than a quarter


@dataclass(frozen=True)
class LinkedCore:
    """A logical core, and what joins it to others: a rank of `trnconv.parallel` has one."""

    machine: Machine
    fabric: Fabric
    cores: int = 1  # physical ones; 2 is a pair (LNC2), whose launches run on both

    @staticmethod
    def of(machine: Machine, reading: Reading = Reading.default, cores: int = 1) -> LinkedCore:
        """The largest one with such cores, in a reading of what is not published."""
        fabric = FABRICS[machine.base_name].read(reading)
        return LinkedCore(machine.read(reading), fabric, cores_of(machine, cores))

    @staticmethod
    def here() -> LinkedCore:
        """That of this host, as firmware, environment and its probes say; trn2 where none does."""
        detected = detect(default=TRN2.name)
        return LinkedCore.of(read_host().machine(detected.target), cores=detected.lnc)

    def message_ns(self, received_bytes: int, ranks: int) -> float:
        """Latency and bandwidth. A band's neighbour may sit on the next chip."""
        within = ranks * self.cores <= self.fabric.cores_per_chip
        rate = self.fabric.bytes_per_ns(self.machine, same_chip=within)
        return self.fabric.message_ns + received_bytes / rate

    def copy_ns(self, moved_bytes: int) -> float:
        """Of bytes read and written by the cores' own DMA engines."""
        rate = self.fabric.bytes_per_ns(self.machine, same_chip=True)
        return moved_bytes / (self.cores * rate)

    @property
    def macs_per_ns(self) -> float:
        """With all of the array of every core at work."""
        return self.cores * self.machine.partitions**2 * self.machine.timing.pe_ghz


ASSUMED = LinkedCore.of(TRN2)  # on paper, where nobody says otherwise


@dataclass(frozen=True)
class Ways:
    """A convolution of a band, as it would run both ways: sizes only."""

    instance: LinkedCore
    band: ConvProblem
    boundaries: tuple[ConvProblem, ...]  # one for each launch
    halos: tuple[int, ...]  # bytes of each message that this rank waits for
    ranks: int
    together_bytes: int  # copied, read and written
    apart_bytes: int


@dataclass(frozen=True)
class Balance:
    """What is gained and lost by convolving boundaries apart, in ns."""

    hidden_ns: float  # of the halos' travel
    uncopied_ns: float
    boundary_ns: float
    launches_ns: float  # of boundaries; nowhere else in an estimate are launches counted

    @property
    def pays(self) -> bool:
        """Whether it gains more than it loses."""
        return self.hidden_ns + self.uncopied_ns > self.boundary_ns + self.launches_ns


@lru_cache(_ASKED)
def balance(ways: Ways) -> Balance:
    """Both ways compared. The band takes as long in both: it has the same outputs and taps."""
    instance = ways.instance

    def band_ns() -> float:
        return _ns(ways.band, instance.cores)

    travel = sum(instance.message_ns(halo, ways.ranks) for halo in ways.halos)
    return Balance(
        hidden_ns=travel if travel * _FASTEST <= _peak_ns(ways) else min(travel, band_ns()),
        uncopied_ns=instance.copy_ns(ways.together_bytes - ways.apart_bytes),
        boundary_ns=sum(_ns(boundary, instance.cores) for boundary in ways.boundaries),
        launches_ns=len(ways.boundaries) * instance.machine.timing.launch_ns,
    )


def overlaps(ways: Ways) -> bool:
    """Whether to do it apart.

    A convolution that the array could do within a launch is not asked about: there is next to
    nothing to hide behind it, and planning it would take longer than it ever gains.
    """
    return _peak_ns(ways) > ways.instance.machine.timing.launch_ns and balance(ways).pays


def _peak_ns(ways: Ways) -> float:
    """The band's direct convolution with all of the array at work all the time."""
    return ways.band.shape.macs() / ways.instance.macs_per_ns


def _ns(problem: ConvProblem, cores: int) -> float:
    try:
        return price(problem, cores=cores).ns
    except TrnconvError:  # no plan is no price: it never pays
        return inf
