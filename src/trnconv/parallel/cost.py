"""What a model takes on several cores: every rank's convolutions, messages and copies. Modelled.

One rank of so many runs on the meta device, with the code that runs in earnest: what its
convolutions get, what it would receive and copy, and which of them run while halos travel is
counted, not guessed. Convolutions are priced by the planner, attention by the Tensor engine's peak,
messages by latency and bandwidth. Norms, and activations that no convolution took over, are left
out, as they are on one core; so are launches, but for those that an overlap adds.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from trnconv.models import ModelEntry, Size
from trnconv.parallel.banded_model import COLUMNS, ROWS, BandedModel
from trnconv.parallel.bands import Bands
from trnconv.parallel.links import PaperLinks
from trnconv.parallel.overlap import AUTO, LinkedCore, balance
from trnconv.parallel.shard import put_on_bands
from trnconv.parallel.traffic import LinkOffer, TrafficKind
from trnconv.pytorch import model_builder
from trnconv.pytorch.estimate import MetaRun, estimate
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
    offer: LinkOffer = LinkOffer.permute
    overlap: str = AUTO


@dataclass(frozen=True)
class CoreTime:
    """The slowest rank's time, in parts. Modelled."""

    part: Part
    largest_share: float  # of the video, on this rank; 1 / cores is even
    convolutions_s: float
    strips_s: float  # of that, at the edges of bands that were convolved while halos travelled
    attention_s: float
    gathers_s: float  # for attention
    statistics_s: float  # of group norms
    copies_s: float  # halo rows and band put side by side
    halos_s: float  # on their way
    hidden_s: float  # of that, while a convolution ran
    launches_s: float  # of strips that were convolved apart
    received_bytes: int

    @property
    def seconds(self) -> float:
        """All together."""
        beside = self.gathers_s + self.statistics_s + self.copies_s + self.launches_s
        return self.convolutions_s + self.attention_s + beside + self.halos_s - self.hidden_s


def core_time(part: Part, instance: LinkedCore) -> CoreTime:
    """One encode or decode at a size on so many cores, in bf16."""
    run, spread, share = observed(part, instance)
    machine = instance.machine
    copied = sum(
        copy.moved_bytes * times
        for copy, times in run.report.book.copies.items()
        if copy.kind == "halo"
    )
    apart = [(balance(ways), times) for ways, times in spread.apart.items()]
    peak_macs_per_ns = machine.partitions**2 * machine.timing.pe_ghz
    macs = sum(attended.macs * times for attended, times in spread.attended.items())
    return CoreTime(
        part,
        share,
        convolutions_s=estimate(run, machine, cores=1).seconds,
        strips_s=sum(balanced.strips_ns * times for balanced, times in apart) / _S,
        attention_s=macs / peak_macs_per_ns / _S,
        gathers_s=_messages_ns(spread, TrafficKind.gather) / _S,
        statistics_s=_messages_ns(spread, TrafficKind.statistics) / _S,
        copies_s=instance.copy_ns(copied) / _S,
        halos_s=_messages_ns(spread, TrafficKind.halo) / _S,
        hidden_s=sum(balanced.hidden_ns * times for balanced, times in apart) / _S,
        launches_s=sum(balanced.launches_ns * times for balanced, times in apart) / _S,
        received_bytes=spread.links.traffic.received(),
    )


def observed(part: Part, instance: LinkedCore) -> tuple[MetaRun, BandedModel, float]:
    """The rank with the largest band and most neighbours, on the meta device."""
    model = model_builder.build(part.entry, device="meta", dtype=torch.bfloat16)
    decodes = part.phase == "decode"
    make = model_builder.example_latent if decodes else model_builder.example_video
    call = model_builder.decode if decodes else model_builder.encode
    given = make(part.entry, part.size, device="meta", dtype=torch.bfloat16)
    cut = _DIMENSIONS[part.axis]
    unit = 1 if decodes else part.entry.compression[cut]
    bands = Bands.shared(given.shape[2 + cut], [1.0] * part.cores, unit)
    rank = _busiest(bands)
    with torch.no_grad(), patched(model) as report:
        links = PaperLinks(None, rank, part.cores, part.offer, 0.0, None)
        spread = BandedModel(cut, links, report.book)
        spread.overlap, spread.instance = part.overlap, instance
        put_on_bands(model, spread)
        band = given.narrow(2 + cut, 0, bands.size(rank))
        for frames in (1, band.shape[2]):  # one, to find the modules that need whole tensors
            report.book.clear()
            links.traffic.clear()
            spread.attended.clear()
            spread.apart.clear()
            spread.levels.begin(bands)
            call(model, part.entry, band[:, :, :frames])
    return MetaRun(report, 0, 0, (), 0, ()), spread, bands.size(rank) / bands.total


def _busiest(bands: Bands) -> int:
    inner = range(1, bands.ranks - 1) if bands.ranks > 2 else range(bands.ranks)
    return max(inner, key=bands.size)


def _messages_ns(spread: BandedModel, kind: TrafficKind) -> float:
    """All messages of a kind, one after the other."""
    ranks = spread.links.ranks
    if ranks == 1:
        return 0.0
    return sum(
        times * spread.instance.message_ns(sent.received_bytes, ranks)
        for sent, times in spread.links.traffic.counts.items()
        if sent.kind is kind
    )
