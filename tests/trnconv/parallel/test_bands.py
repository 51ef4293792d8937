"""Bands, and which rows the outputs of each rank read."""

import random

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
F = torch.nn.functional

from trnconv.errors import ShapeError, UnsupportedError
from trnconv.parallel.bands import Bands, meeting
from trnconv.parallel.boundary import boundaries, by_window
from trnconv.parallel.grid import BandGrid, MeshCut, area, common, edges
from trnconv.parallel.levels import Levels
from trnconv.parallel.receptive_field import Sliding, out_bands, receptive_field
from trnconv.parallel.traffic import ExchangeKind, halo_area
from trnconv.pytorch.backends.conv_call import ConvSpec
from trnconv.pytorch.operators.convolutions import fused_convolution

NAMED = {"zeros": "constant"}


@pytest.mark.parametrize("axis_total", [8, 11, 90])
def test_shares_cover_all_rows_and_leave_no_rank_without(axis_total):
    for shares in ([1], [1, 1], [100, 1, 1], [1, 2, 3], [1] * 8):
        bands = Bands.shared(axis_total, shares)
        assert sum(bands.sizes()) == axis_total
        assert min(bands.sizes()) >= 1


def test_equal_shares_differ_by_one_row_at_most():
    sizes = Bands.shared(90, [1] * 64).sizes()
    assert set(sizes) == {1, 2}


def test_units_keep_blocks_together():
    assert Bands.shared(48, [1, 3, 2], unit=8).bounds == (0, 8, 32, 48)


@pytest.mark.parametrize(
    ("total", "shares", "unit"), [(3, [1] * 4, 1), (20, [1, 1], 8), (8, [1, 0], 1), (8, [], 1)]
)
def test_shares_that_cannot_be_are_refused(total, shares, unit):
    with pytest.raises(ShapeError, match="at least"):
        Bands.shared(total, shares, unit)


def test_an_empty_band_is_refused():
    with pytest.raises(ShapeError, match="rank 1 has none"):
        Bands((0, 4, 4, 8))


def test_intervals():
    assert meeting((0, 4), (2, 9)) == (2, 4)
    assert meeting((0, 4), (6, 9)) == (6, 6)


def random_problem(dice):
    """A sliding window, bands of what it slides over, and one that has outputs everywhere."""
    while True:
        up, kernel, dilation = (
            dice.choice([1, 1, 1, 2, 3]),
            dice.randint(1, 5),
            dice.choice([1, 1, 2]),
        )
        reach = dilation * (kernel - 1) + 1
        mode = dice.choice(["zeros", "replicate", "reflect"] if up == 1 else ["zeros", "replicate"])
        sliding = Sliding(
            kernel=kernel,
            stride=dice.choice([1, 2, 3]) if up == 1 else 1,
            dilation=dilation,
            before=dice.randint(0, min(3, reach - 1)),
            after=dice.randint(0, min(3, reach - 1)),
            upsample=up,
            mode=mode,
        )
        bands = Bands.shared(
            dice.randint(6, 14), [dice.randint(1, 4) for _ in range(dice.randint(1, 5))]
        )
        if sliding.out_size(bands.total) < 1:
            continue
        try:
            out_bands(bands, sliding)
        except ShapeError:
            continue
        return sliding, bands


def whole(x, w, sliding):
    """By torch alone: upsampled, padded, convolved."""
    tall = x.repeat_interleave(sliding.upsample, dim=3)
    sides = (0, 0, sliding.before, sliding.after, 0, 0)
    padded = F.pad(tall, sides, mode=NAMED.get(sliding.mode, sliding.mode))
    return F.conv3d(padded, w, stride=(1, sliding.stride, 1), dilation=(1, sliding.dilation, 1))


def of_band(x, w, sliding, bands, rank, backend):
    """The rows that a rank reads, cut from the whole, and convolved as it would."""
    return convolved(x, w, sliding, receptive_field(bands, sliding, rank), backend)


def convolved(x, w, sliding, own, backend):
    rows = x[:, :, :, own.start : own.stop]
    if own.order:
        rows = rows[:, :, :, list(own.order)]
    padded = own.before > 0 or own.after > 0
    spec = ConvSpec(
        stride=(1, sliding.stride, 1),
        before=(0, own.before, 0),
        after=(0, own.after, 0),
        dilation=(1, sliding.dilation, 1),
        modes=("zeros", sliding.mode if padded else "zeros", "zeros"),
        upsample=(1, sliding.upsample, 1),
        skip=(0, own.skip, 0),
        reproducible=True,
    )
    return fused_convolution([rows.contiguous()], w, None, spec, backend=backend)


@pytest.mark.parametrize(("backend", "count"), [("torch", 300), ("nkisim", 40)])
def test_bands_of_a_convolution_are_the_whole_one(backend, count):
    """Small integers: every sum is exact, so that there is one right result."""
    dice = random.Random(7)  # noqa: S311 (a fixed sequence)
    numbers = torch.Generator().manual_seed(0)
    for _ in range(count):
        sliding, bands = random_problem(dice)
        x = torch.randint(-4, 5, (1, 2, 1, bands.total, 3), generator=numbers).float()
        w = torch.randint(-4, 5, (2, 2, 1, sliding.kernel, 1), generator=numbers).float()
        want = whole(x, w, sliding)
        made = out_bands(bands, sliding)
        assert made.total == want.shape[3]
        parts = [of_band(x, w, sliding, bands, rank, backend) for rank in range(bands.ranks)]
        assert [part.shape[3] for part in parts] == list(made.sizes()), (sliding, bands)
        assert torch.equal(torch.cat(parts, dim=3), want), (sliding, bands)


def test_a_band_alone_and_the_boundaries_at_its_edges_are_the_band_of_the_whole():
    """Wherever they are said to be; and they are, for what models do, unless a band is thin."""
    dice = random.Random(11)  # noqa: S311 (a fixed sequence)
    numbers = torch.Generator().manual_seed(0)
    split = 0
    for _ in range(300):
        sliding, bands = random_problem(dice)
        x = torch.randint(-4, 5, (1, 2, 1, bands.total, 3), generator=numbers).float()
        w = torch.randint(-4, 5, (2, 2, 1, sliding.kernel, 1), generator=numbers).float()
        want, made = whole(x, w, sliding), out_bands(bands, sliding)
        for rank in range(bands.ranks):
            found = boundaries(bands, sliding, rank)
            if found is None:
                continue
            split += len(found)
            start, stop = bands.of(rank)
            y = whole(x[:, :, :, start:stop], w, sliding)
            for boundary in found:
                part = convolved(x, w, sliding, boundary.field, "torch")
                assert part.shape[3] == boundary.count
                y[:, :, :, boundary.first : boundary.first + boundary.count] = part
            first, last = made.of(rank)
            assert torch.equal(y, want[:, :, :, first:last]), (sliding, bands, rank)
    assert split > 100


@pytest.mark.parametrize(
    ("sliding", "launches"),
    [
        (Sliding(3, before=1, after=1), ((0, 1), (7, 1))),
        (Sliding(3, stride=2, after=1), ((3, 1),)),
        (Sliding(3, before=1, after=1, upsample=2), ((0, 1), (15, 1))),
        (Sliding(3, before=1, after=1, mode="replicate"), ((0, 1), (7, 1))),
        (Sliding(3, before=1, after=1, mode="reflect"), ((0, 1), (7, 1))),
    ],
)
def test_boundaries_of_the_middle_band_by_hand(sliding, launches):
    found = boundaries(Bands((0, 8, 16, 24)), sliding, 1)
    got = None if found is None else tuple((boundary.first, boundary.count) for boundary in found)
    assert got == launches


def test_both_edges_are_images_of_one_launch_unless_they_read_differently():
    bands = Bands((0, 8, 16, 24))
    same = boundaries(bands, Sliding(3, before=1, after=1), 1)
    upsampled = boundaries(bands, Sliding(3, before=1, after=1, upsample=2), 1)
    assert [len(group) for group in by_window(same)] == [2]
    assert [len(group) for group in by_window(upsampled)] == [1, 1]


def test_a_band_of_which_every_output_reads_other_rows_is_not_split():
    assert boundaries(Bands((0, 8, 10, 24)), Sliding(3, before=1, after=1), 1) is None
    assert boundaries(Bands((0, 8, 11, 24)), Sliding(3, before=1, after=1), 1) is not None


def test_nothing_is_read_that_no_output_needs():
    """Rows read, against a look at every tap of every output."""
    dice = random.Random(3)  # noqa: S311 (a fixed sequence)
    for _ in range(200):
        sliding, bands = random_problem(dice)
        made = out_bands(bands, sliding)
        for rank in range(bands.ranks):
            taps = {
                out * sliding.stride + tap * sliding.dilation - sliding.before
                for out in range(*made.of(rank))
                for tap in range(sliding.kernel)
            }
            inside = {
                at // sliding.upsample for at in taps if 0 <= at < bands.total * sliding.upsample
            }
            own = receptive_field(bands, sliding, rank)
            if sliding.mode == "zeros" and sliding.dilation == 1:
                assert (own.start, own.stop) == (min(inside), max(inside) + 1)


def test_circular_padding_is_refused():
    with pytest.raises(UnsupportedError, match="circular"):
        receptive_field(Bands((0, 4, 8)), Sliding(3, before=1, after=1, mode="circular"), 0)


def test_outputs_of_padding_alone_are_refused():
    with pytest.raises(ShapeError, match="padding alone"):
        receptive_field(Bands((0, 4, 8)), Sliding(1, before=9), 0)


def test_a_rank_without_outputs_is_refused():
    with pytest.raises(ShapeError, match="none of the 2 rows"):
        out_bands(Bands((0, 1, 2, 4)), Sliding(2, stride=2))


def test_levels_are_found_by_size_and_doubled():
    levels = Levels(rank=1)
    levels.begin(Bands((0, 1, 4, 6)))
    assert levels.of(3).bounds == (0, 1, 4, 6)
    assert levels.of(12).bounds == (0, 4, 16, 24)
    with pytest.raises(ShapeError, match="5 rows"):
        levels.of(5)


def test_levels_that_any_rank_could_confuse_are_refused_by_all():
    for rank in range(3):
        levels = Levels(rank)
        levels.begin(Bands((0, 3, 4, 8)))
        with pytest.raises(ShapeError, match="rank 1 could not tell"):
            levels.add(Bands((0, 2, 3, 5)))


def along(intervals):
    return tuple((interval,) for interval in intervals)


def test_halo_rows_by_hand():
    grid, wanted = BandGrid((Bands((0, 4, 8, 12)),)), along([(0, 5), (3, 9), (7, 12)])
    assert [halo_area(grid, wanted, rank, ExchangeKind.permute) for rank in range(3)] == [1, 2, 1]
    assert edges(grid, wanted)[1] == (((4, 5),), ((7, 8),))
    # Two others, each as long as the middle one's two rows.
    assert [halo_area(grid, wanted, rank, ExchangeKind.all_gather) for rank in range(3)] == [
        4,
        4,
        4,
    ]


def test_bands_thinner_than_a_halo_are_fetched_from_further_ranks():
    grid, wanted = BandGrid((Bands((0, 1, 2, 3, 9)),)), along([(0, 4), (0, 5), (0, 6), (0, 9)])
    got = [halo_area(grid, wanted, rank, ExchangeKind.permute) for rank in range(4)]
    assert got == [3, 4, 5, 3]


def test_places_on_a_mesh_count_columns_first():
    cut = MeshCut((1, 2), (2, 3))
    assert [cut.place(rank) for rank in range(6)] == [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 0),
        (1, 1),
        (1, 2),
    ]
    grid = BandGrid((Bands((0, 2, 5)), Bands((0, 1, 4, 6))))
    assert grid.of(4) == ((2, 5), (1, 4))
    assert sum(area(grid.of(rank)) for rank in range(6)) == 5 * 6


def test_corners_of_a_mesh_are_received_once():
    """The middle of 3 x 3, one row and one column more on each side: 4 x 4 without 2 x 2."""
    bands = Bands((0, 2, 4, 6))
    grid = BandGrid((bands, bands))
    wanted = tuple(
        tuple((max(0, start - 1), min(6, stop + 1)) for start, stop in grid.of(rank))
        for rank in range(9)
    )
    assert halo_area(grid, wanted, 4, ExchangeKind.permute) == 4 * 4 - 2 * 2
    assert halo_area(grid, wanted, 0, ExchangeKind.permute) == 3 * 3 - 2 * 2
    assert halo_area(grid, wanted, 0, ExchangeKind.all_gather) == 8 * 4  # the middle sends all


def test_edges_are_all_that_others_read_and_do_not_overlap():
    dice = random.Random(5)  # noqa: S311 (a fixed sequence)
    for _ in range(50):
        grid = BandGrid(
            tuple(Bands.shared(9, [dice.randint(1, 3) for _ in range(3)]) for _ in "hw")
        )
        reach = dice.randint(1, 3)
        wanted = tuple(
            tuple((max(0, start - reach), min(9, stop + 1)) for start, stop in grid.of(rank))
            for rank in range(9)
        )
        for source, regions in enumerate(edges(grid, wanted)):
            cells = [cell for region in regions for cell in positions(region)]
            others = [wanted[rank] for rank in range(9) if rank != source]
            met = {cell for other in others for cell in positions(common(grid.of(source), other))}
            assert len(cells) == len(set(cells))
            assert set(cells) == met


def positions(region):
    (top, bottom), (left, right) = region
    return [(row, column) for row in range(top, bottom) for column in range(left, right)]
