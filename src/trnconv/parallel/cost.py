"""What a model takes on several cores: every rank's convolutions, messages and copies. Modelled.

One rank of so many runs on the meta device, with the code that runs in earnest: what its
convolutions get, what it would receive and copy, and which of them run while halos travel is
counted, not guessed. Convolutions are priced by the planner, attention by the Tensor engine's peak,
messages by latency and bandwidth; norms, activations and copies as `trnconv.model_plan` does, by
our kernels where there are any and else by their bytes. Launches are left out, but for those that
an overlap adds. A rank is a logical core: one physical core, or a pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch

from trnconv.model_plan.operations import operation_plans
from trnconv.models import ModelEntry, Size
from trnconv.parallel.banded_model import BandedModel
from trnconv.parallel.bands import Bands
from trnconv.parallel.comm import MetaComm, cut_out
from trnconv.parallel.grid import COLUMNS, ROWS, BandGrid, MeshCut, area
from trnconv.parallel.overlap import AUTO, LinkedCore, balance
from trnconv.parallel.shard import put_on_bands
from trnconv.parallel.traffic import ExchangeKind, TrafficKind
from trnconv.pytorch import model_builder
from trnconv.pytorch.estimate import MetaRun, estimate, rewrites_on
from trnconv.pytorch.patching import patched
from trnconv.pytorch.step_log import StepLog
from trnconv.traces.groups import operations_of
from trnconv.traces.operation import ATTENTION

_S = 1e9  # ns


@dataclass(frozen=True)
class Part:
    """A model, what it is to do, and how it is cut."""

    entry: ModelEntry
    size: Size
    phase: str
    counts: tuple[int, int]  # of bands: down the rows, across the columns
    exchange: ExchangeKind = ExchangeKind.permute
    overlap: str = AUTO

    @property
    def ranks(self) -> int:
        """That share the video, each on a logical core."""
        return prod(self.counts)

    @property
    def cut(self) -> MeshCut:
        """Axes with one band are not cut."""
        down, across = self.counts
        cuts = [(axis, n) for axis, n in ((ROWS, down), (COLUMNS, across)) if n > 1]
        axes, counts = zip(*(cuts or [(ROWS, 1)]), strict=True)
        return MeshCut(axes, counts)


@dataclass(frozen=True)
class CoreTime:
    """The slowest rank's time, in parts. Modelled."""

    part: Part
    largest_share: float  # of the video, on this rank; 1 / cores is even
    convolutions_s: float
    boundary_s: float  # of that, at the edges of bands that were convolved while halos travelled
    attention_s: float
    gathers_s: float  # for attention
    statistics_s: float  # of group norms
    copies_s: float  # halo rows and band put side by side
    halos_s: float  # on their way
    hidden_s: float  # of that, while a convolution ran
    launches_s: float  # of boundaries that were convolved apart
    others_s: float  # norms, activations, and copies that no halo asks for
    received_bytes: int

    @property
    def seconds(self) -> float:
        """All together."""
        beside = self.gathers_s + self.statistics_s + self.copies_s + self.launches_s
        beside += self.others_s
        return self.convolutions_s + self.attention_s + beside + self.halos_s - self.hidden_s


def core_time(part: Part, instance: LinkedCore) -> CoreTime:
    """One encode or decode at a size on so many cores, in bf16."""
    run, spread, share = rank_on_meta(part, instance)
    machine = instance.machine
    copied = sum(
        copy.moved_bytes * times
        for copy, times in run.report.stats.copies.items()
        if copy.kind == "halo"
    )
    copies_ns = instance.copy_ns(copied)
    apart = [(balance(ways), times) for ways, times in spread.apart.items()]
    macs = sum(attended.macs * times for attended, times in spread.attended.items())
    return CoreTime(
        part,
        share,
        convolutions_s=estimate(run, machine, cores=instance.cores).seconds,
        boundary_s=sum(balanced.boundary_ns * times for balanced, times in apart) / _S,
        attention_s=macs / instance.macs_per_ns / _S,
        gathers_s=_messages_ns(spread, TrafficKind.gather) / _S,
        statistics_s=_messages_ns(spread, TrafficKind.statistics) / _S,
        copies_s=copies_ns / _S,
        halos_s=_messages_ns(spread, TrafficKind.halo) / _S,
        hidden_s=sum(balanced.hidden_ns * times for balanced, times in apart) / _S,
        launches_s=sum(balanced.launches_ns * times for balanced, times in apart) / _S,
        others_s=max(0.0, _others_ns(run, instance) - copies_ns) / _S,
        received_bytes=spread.comm.traffic.received(),
    )


def rank_on_meta(part: Part, instance: LinkedCore) -> tuple[MetaRun, BandedModel, float]:
    """The rank with the largest band and most neighbours, on the meta device."""
    model = model_builder.build(part.entry, device="meta", dtype=torch.bfloat16)
    decodes = part.phase == "decode"
    make = model_builder.example_latent if decodes else model_builder.example_video
    call = model_builder.decode if decodes else model_builder.encode
    x = make(part.entry, part.size, device="meta", dtype=torch.bfloat16)
    cut = part.cut
    unit = 1 if decodes else part.entry.compression[ROWS]
    grid = BandGrid(
        tuple(
            Bands.shared(x.shape[2 + axis], [1.0] * count, unit)
            for axis, count in zip(cut.axes, cut.counts, strict=True)
        )
    )
    rank = max(range(grid.ranks), key=lambda place: _work_of(grid, place))
    rewrites = rewrites_on(instance.machine)
    with torch.no_grad(), patched(model, rewrites=rewrites) as report:
        comm = MetaComm(None, rank, grid.ranks, part.exchange, 0.0, None)
        spread = BandedModel(cut, comm, report.stats)
        spread.overlap, spread.instance = part.overlap, instance
        put_on_bands(model, spread)
        band = cut_out(x, cut.dims(x.dim()), grid.whole, grid.of(rank))
        for frames in (1, band.shape[2]):  # one, to find the modules that need whole tensors
            report.stats.clear()
            comm.traffic.clear()
            spread.attended.clear()
            spread.apart.clear()
            spread.begin(grid)
            with StepLog(report.stats) as log:
                call(model, part.entry, band[:, :, :frames])
    share = area(grid.of(rank)) / area(grid.whole)
    return MetaRun(report, 0, 0, (), 0, tuple(log.steps)), spread, share


def _others_ns(run: MetaRun, instance: LinkedCore) -> float:
    """All that is neither a convolution nor attention, copies included."""
    operations = operations_of(run.steps).items()
    asked = [(operation, calls) for operation, calls in operations if operation.kind != ATTENTION]
    return sum(plan.ns for plan in operation_plans(asked, instance.machine, instance.cores))


def _work_of(grid: BandGrid, rank: int) -> tuple[int, int]:
    """The size of what a rank has, then how many sides of it others have."""
    region = grid.of(rank)
    inner = [
        (start > 0) + (stop < total)
        for (start, stop), (_, total) in zip(region, grid.whole, strict=True)
    ]
    return area(region), sum(inner)


def _messages_ns(spread: BandedModel, kind: TrafficKind) -> float:
    """All messages of a kind, one after the other."""
    ranks = spread.comm.ranks
    if ranks == 1:
        return 0.0
    return sum(
        times * spread.instance.message_ns(sent.received_bytes, ranks)
        for sent, times in spread.comm.traffic.counts.items()
        if sent.kind is kind
    )
