"""What a model takes on several cores: every rank's convolutions, messages and copies. Modelled.

One rank of so many runs on the meta device, with the code that runs in earnest: what its
convolutions get, what it would receive and copy is counted, not guessed. Convolutions are priced by
the planner, attention by the Tensor engine's peak, messages by latency and bandwidth. Norms, and
activations that no convolution took over, are left out, as they are on one core.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch

from nkisim.machine import FABRICS, Fabric, Machine
from trnconv.models import ModelEntry, Size
from trnconv.parallel.bands import Bands
from trnconv.parallel.links import PaperLinks
from trnconv.parallel.shard import put_on_bands
from trnconv.parallel.spread import COLUMNS, ROWS, Spread
from trnconv.parallel.traffic import Kind, Offer
from trnconv.pytorch import building
from trnconv.pytorch.estimate import Estimate, Run, estimate
from trnconv.pytorch.patching import patched

_DIMENSIONS = {"rows": ROWS, "columns": COLUMNS}
_S = 1e9  # ns


@dataclass(frozen=True)
class Part:
    """A model, what it is to do, and how it is cut."""

    entry: ModelEntry
    size: Size
    phase: str
    axis: str
    cores: int
    offer: Offer = Offer.permute


@dataclass(frozen=True)
class CoreTime:
    """The slowest rank's time, in parts. Modelled."""

    part: Part
    largest_share: float  # of the video, on this rank; 1 / cores is even
    convolutions_s: float
    attention_s: float
    gathers_s: float  # for attention
    statistics_s: float  # of group norms
    copies_s: float  # halo rows and band put side by side
    halos_s: float
    exposed_halos_s: float  # what no interior could hide, if interiors ran meanwhile
    received_bytes: int

    @property
    def seconds(self) -> float:
        """As it runs: exchanges first, then convolutions."""
        return self._without_halos + self.halos_s

    @property
    def overlapped_s(self) -> float:
        """If rows that need no halo were computed while halos travel."""
        return self._without_halos + self.exposed_halos_s

    @property
    def _without_halos(self) -> float:
        beside = self.gathers_s + self.statistics_s + self.copies_s
        return self.convolutions_s + self.attention_s + beside


def core_time(part: Part, machine: Machine) -> CoreTime:
    """One encode or decode at a size on so many cores, in bf16."""
    run, spread, share = observed(part)
    priced = estimate(run, machine)
    fabric = FABRICS[machine.name]
    copied = sum(
        copy.moved_bytes * times
        for copy, times in run.report.book.copies.items()
        if copy.kind == "halo"
    )
    halos = _by_module(spread, Kind.halo, machine, fabric)
    peak_macs_per_ns = machine.partitions**2 * machine.timing.pe_ghz
    macs = sum(each.macs * times for each, times in spread.attended.items())
    return CoreTime(
        part,
        share,
        convolutions_s=priced.seconds,
        attention_s=macs / peak_macs_per_ns / _S,
        gathers_s=sum(_by_module(spread, Kind.gather, machine, fabric).values()) / _S,
        statistics_s=sum(_by_module(spread, Kind.statistics, machine, fabric).values()) / _S,
        copies_s=copied / fabric.bytes_per_ns(machine, same_chip=True) / _S,
        halos_s=sum(halos.values()) / _S,
        exposed_halos_s=_exposed(halos, priced) / _S,
        received_bytes=spread.links.traffic.received(),
    )


def observed(part: Part) -> tuple[Run, Spread, float]:
    """The rank with the largest band and most neighbours, on the meta device."""
    model = building.build(part.entry, device="meta", dtype=torch.bfloat16)
    decodes = part.phase == "decode"
    make = building.example_latent if decodes else building.example_video
    call = building.decode if decodes else building.encode
    given = make(part.entry, part.size, device="meta", dtype=torch.bfloat16)
    cut = _DIMENSIONS[part.axis]
    unit = 1 if decodes else part.entry.compression[cut]
    bands = Bands.shared(given.shape[2 + cut], [1.0] * part.cores, unit)
    rank = _busiest(bands)
    with torch.no_grad(), patched(model) as report:
        links = PaperLinks(None, rank, part.cores, part.offer, 0.0, None)
        spread = Spread(cut, links, report.book)
        put_on_bands(model, spread)
        band = given.narrow(2 + cut, 0, bands.size(rank))
        for frames in (1, band.shape[2]):  # one, to find the modules that need whole tensors
            report.book.clear()
            links.traffic.clear()
            spread.attended.clear()
            spread.levels.begin(bands)
            call(model, part.entry, band[:, :, :frames])
    return Run(report, 0, 0, (), 0), spread, bands.size(rank) / bands.total


def _busiest(bands: Bands) -> int:
    inner = range(1, bands.ranks - 1) if bands.ranks > 2 else range(bands.ranks)
    return max(inner, key=bands.size)


def _by_module(spread: Spread, kind: Kind, machine: Machine, fabric: Fabric) -> Counter[str]:
    """ns of all messages of a kind. A band's neighbour may sit on the next chip."""
    within = spread.links.ranks <= fabric.cores_per_chip
    rate = fabric.bytes_per_ns(machine, same_chip=within)
    total: Counter[str] = Counter()
    for sent, times in spread.links.traffic.counts.items():
        if sent.kind is kind and spread.links.ranks > 1:
            total[sent.module] += times * (fabric.message_ns + sent.received_bytes / rate)  # type: ignore[assignment]
    return total


def _exposed(halos: Counter[str], priced: Estimate) -> float:
    """ns of exchanges longer than the convolution that waits for them."""
    computing: Counter[str] = Counter()
    for layer in priced.layers:
        computing[layer.work.module] += layer.ns  # type: ignore[assignment]
    return sum(max(0.0, ns - computing[module]) for module, ns in halos.items())
