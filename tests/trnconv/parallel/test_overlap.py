"""A band is convolved while rows of others travel: in this order, where it pays, with one result.

The link is a double: it has the whole video, answers for all other ranks, and notes when.
"""

import copy

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from nkisim.fabric import FABRICS
from nkisim.machine import TRN2, Reading
from trnconv.geometry import ConvShape
from trnconv.parallel.banded_model import BandedModel
from trnconv.parallel.bands import Bands, meeting
from trnconv.parallel.comm import MetaComm
from trnconv.parallel.grid import ROWS, BandGrid, MeshCut
from trnconv.parallel.overlap import Balance, LinkedCore, Ways, balance, overlaps
from trnconv.parallel.shard import put_on_bands
from trnconv.parallel.traffic import ExchangeKind, TrafficKind
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.policy import Policy
from trnconv.pytorch import patched
from trnconv.pytorch.lazy.convolutions import deferred_conv
from trnconv.runtime.pricing import price

BANDS = Bands((0, 6, 14, 20))
RANK = 1
LATE = "received"


class Double(MetaComm):
    """The communicator of one rank, to ranks that are not there."""

    def begin(self, whole, events):
        self.whole, self.events = whole, events

    def _permuted(self, own, dims, grid, wanted):
        del own
        (dim,) = dims
        self.events.append("sent")

        def arrived():
            self.events.append(LATE)
            rows = {}
            for other in range(self.ranks):
                start, stop = meeting(*grid.of(other), *wanted[self.rank])
                if other != self.rank and start < stop:
                    rows[start,] = self.whole.narrow(dim, start, stop - start)
            return rows

        return arrived


@pytest.fixture
def events(monkeypatch):
    """What happens in order: a convolution is noted by the rows of its output."""
    seen, own = [], deferred_conv.fused_convolution

    def convolved(*args, **kwargs):
        y = own(*args, **kwargs)
        seen.append(f"{y.shape[3]} rows of {y.shape[0]}")
        return y

    monkeypatch.setattr(deferred_conv, "fused_convolution", convolved)
    return seen


def layer(**options):
    torch.manual_seed(0)
    made = torch.nn.Conv3d(4, 4, 3, padding=1, **options)
    with torch.no_grad():
        made.weight.copy_(torch.randint(-3, 4, made.weight.shape))
        made.bias.copy_(torch.randint(-3, 4, made.bias.shape))
    return torch.nn.Sequential(made).eval().requires_grad_(requires_grad=False)


def in_the_middle(model, x, overlap, events, **options):
    """What the middle rank of three makes of its band; and its spread."""
    with patched(model, **{"backend": "torch", **options}) as report:
        comm = Double(None, RANK, BANDS.ranks, ExchangeKind.permute, 0.0, None)
        comm.begin(x, events)
        spread = BandedModel(MeshCut((ROWS,), (BANDS.ranks,)), comm, report.stats)
        spread.overlap = overlap
        spread.begin(BandGrid((BANDS,)))
        put_on_bands(model, spread)
        start, stop = BANDS.of(RANK)
        return model(x[:, :, :, start:stop].contiguous()), spread


def small_video():
    numbers = torch.Generator().manual_seed(1)
    return torch.randint(-3, 4, (1, 4, 3, BANDS.total, 5), generator=numbers).float()


def test_the_band_is_convolved_before_rows_of_others_are_there(events):
    in_the_middle(layer(), small_video(), "always", events)
    assert events == ["sent", "8 rows of 1", LATE, "1 rows of 2"]


def test_without_overlap_the_rows_come_first(events):
    in_the_middle(layer(), small_video(), "never", events)
    assert events == ["sent", LATE, "8 rows of 1"]


@pytest.mark.parametrize("mode", ["zeros", "replicate", "reflect"])
@pytest.mark.parametrize("overlap", ["always", "never"])
def test_the_result_is_the_band_of_the_whole(events, overlap, mode):
    """Small integers: there is one right result."""
    model, x = layer(padding_mode=mode), small_video()
    y, _ = in_the_middle(model, x, overlap, events)
    assert torch.equal(y, model(x)[:, :, :, slice(*BANDS.of(RANK))])


class Residual(torch.nn.Module):
    """What a convolution takes over at its end."""

    def __init__(self):
        super().__init__()
        self.layer = layer()

    def forward(self, x):
        return torch.relu(self.layer(x) + x)


def test_residual_and_activation_reach_the_boundaries(events):
    model, x = Residual().eval().requires_grad_(requires_grad=False), small_video()
    y, spread = in_the_middle(model, x, "always", events)
    assert torch.equal(y, model(x)[:, :, :, slice(*BANDS.of(RANK))])
    ends = {work.epilogue.activation for work in spread.stats.works}
    assert (len(spread.stats.works), len(ends)) == (2, 1)


class Normed(torch.nn.Module):
    """A convolution and a norm over its channels, which its kernel does at its end."""

    def __init__(self, keeps):
        super().__init__()
        self.layer = torch.nn.Conv3d(96, 96, 3, padding=1)
        self.gamma = torch.nn.Parameter(torch.rand(96, 1, 1, 1))
        self.keeps = keeps

    def forward(self, x):
        y = self.layer(x)
        z = torch.nn.functional.silu(torch.nn.functional.normalize(y, dim=1) * self.gamma)
        return torch.cat([z, y]) if self.keeps else z


def rms(tensor):
    return tensor.double().pow(2).mean().sqrt().item()


@pytest.mark.parametrize("keeps", [True, False])
def test_norms_at_the_end_reach_the_boundaries(events, monkeypatch, keeps):
    """Rows at the cuts are as near to the exact result as torch's bf16 is, as all others are."""
    seen, own = [], deferred_conv.PendingConv.run_normed

    def noted(self, norming, *, keeps, first):
        seen.append(keeps)
        return own(self, norming, keeps=keeps, first=first)

    monkeypatch.setattr(deferred_conv.PendingConv, "run_normed", noted)
    torch.manual_seed(2)
    model = Normed(keeps).bfloat16().eval().requires_grad_(requires_grad=False)
    x = torch.randn(1, 96, 4, BANDS.total, 16).bfloat16()
    torchs, exact = model(x), copy.deepcopy(model).double()(x.double())
    small = Policy("bf16", least_macs=0)
    y, _ = in_the_middle(model, x, "always", events, backend="nkisim", accuracy=small)
    assert seen == [keeps]
    assert events[:1] == ["sent"]
    start, stop = BANDS.of(RANK)
    for rows in (slice(0, 1), slice(1, -1), slice(-1, None)):
        band = exact[:, :, :, start:stop][:, :, :, rows]
        floor = rms(torchs[:, :, :, start:stop][:, :, :, rows] - band)
        assert rms(y[:, :, :, rows] - band) <= 1.1 * floor


def test_only_edges_are_copied(events):
    """Boundaries in and out, read and written; without overlap, all of the band."""
    model, x = layer(), small_video()
    copied = {}
    for overlap in ("always", "never"):
        _, spread = in_the_middle(model, x, overlap, events)
        halos = [copy for copy in spread.stats.copies.items() if copy[0].kind == "halo"]
        copied[overlap] = sum(copy.moved_bytes * times for copy, times in halos)
    row_bytes = 4 * 3 * 5 * 4
    assert copied["always"] == 2 * 2 * (3 + 1) * row_bytes
    assert copied["never"] == (8 + 10) * row_bytes


def test_the_same_rows_are_sent_either_way(events):
    model, x = layer(), small_video()
    sent = [
        in_the_middle(model, x, overlap, events)[1].comm.traffic.received(TrafficKind.halo)
        for overlap in ("always", "never")
    ]
    assert sent == [2 * 4 * 3 * 5 * 4] * 2


class Chunked(torch.nn.Module):
    """A causal convolution, four frames at a time, that keeps the last two: as autoencoders do."""

    def __init__(self):
        super().__init__()
        self.layer = layer(padding_mode="zeros")[0]
        self.layer.padding = (0, 1, 1)

    def forward(self, x):
        parts, kept = [], None
        for chunk in x.split(4, dim=2):
            cache = chunk[:, :, -2:].clone()
            parts.append(self.layer(chunk if kept is None else torch.cat([kept, chunk], dim=2)))
            kept = cache
        return torch.cat(parts, dim=2)


@pytest.mark.parametrize("overlap", ["always", "never"])
def test_frames_that_were_copied_for_a_cache_are_not_asked_for_again(overlap):
    """Twelve frames in three chunks: a message for each, and the rows of every frame once."""
    model = Chunked().eval().requires_grad_(requires_grad=False)
    start, stop = BANDS.of(RANK)
    with patched(model, backend="torch") as report:
        comm = MetaComm(None, RANK, BANDS.ranks, ExchangeKind.permute, 0.0, None)
        spread = BandedModel(MeshCut((ROWS,), (BANDS.ranks,)), comm, report.stats)
        spread.overlap = overlap
        spread.begin(BandGrid((BANDS,)))
        put_on_bands(model, spread)
        model(torch.zeros(1, 4, 12, stop - start, 5))
    assert [work.pieces for work in report.stats.works if work.pieces] != []
    assert comm.traffic.times(TrafficKind.halo) == 3
    assert comm.traffic.received(TrafficKind.halo) == 12 * 2 * 4 * 5 * 4


def ways(channels, rows, columns, halos=(40_000,)):
    """A 3x3x3 convolution of three frames of a band, and of its boundaries."""

    def problem(images, size, padding):
        return ConvProblem(
            ConvShape(
                images,
                channels,
                channels,
                size,
                (3, 3, 3),
                pad_before=(0, *padding),
                pad_after=(0, *padding),
            ),
            TRN2,
        )

    row_bytes = channels * 3 * columns * 2
    return Ways(
        instance=LinkedCore.of(TRN2),
        band=problem(1, (3, rows, columns), (1, 1)),
        boundaries=(problem(2, (3, 3, columns), (0, 1)),),
        halos=halos,
        ranks=4,
        together_bytes=(2 * rows + 2) * row_bytes,
        apart_bytes=2 * 2 * (3 * row_bytes + row_bytes // 3),
    )


@pytest.mark.parametrize(
    ("channels", "rows", "columns", "halos", "expected"),
    [
        (96, 90, 320, (40_000,), True),
        (96, 90, 320, (), True),  # known: what is gained is the copy
        (384, 12, 20, (40_000,), False),
        (96, 3, 320, (40_000,), False),  # boundaries are nearly as much as the band
        (16, 8, 8, (40_000,), False),
    ],
)
def test_the_way_is_taken_that_takes_less_time(channels, rows, columns, halos, expected):
    """Both ways added up by hand."""
    both = ways(channels, rows, columns, halos)
    fabric = FABRICS["trn2"]
    rate = TRN2.timing.dma_engines * TRN2.timing.dma_bytes_per_ns  # four cores of one chip
    travel = sum(fabric.message_ns + each / rate for each in halos)
    band, (boundaries,) = (
        price(both.band, cores=1).ns,
        [price(each, cores=1).ns for each in both.boundaries],
    )
    together = travel + both.together_bytes / rate + band
    apart = max(travel, band) + boundaries + both.apart_bytes / rate + TRN2.timing.launch_ns
    assert overlaps(both) == (apart < together) == expected


def test_a_balance_says_what_is_hidden():
    both = ways(96, 24, 64, (10**9,))
    assert balance(both).hidden_ns == price(both.band, cores=1).ns
    assert Balance(hidden_ns=2, uncopied_ns=2, boundary_ns=1, launches_ns=2).pays
    assert not Balance(hidden_ns=1, uncopied_ns=2, boundary_ns=1, launches_ns=2).pays


def test_readings_are_of_core_and_links():
    low, high = (LinkedCore.of(TRN2, one) for one in (Reading.optimistic, Reading.pessimistic))
    assert low.message_ns(0, 2) == FABRICS["trn2"].message_ns.optimistic
    assert high.message_ns(0, 2) == FABRICS["trn2"].message_ns.pessimistic
    assert low.machine.timing.launch_ns < high.machine.timing.launch_ns
