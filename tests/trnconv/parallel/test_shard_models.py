"""Models of the registry in bands, on 2 to 4 ranks: what one rank gives, and what is sent.

How far results may be from exact ones is the rule of `three_way`, with the unpatched model on one
rank as the floor: bands round at the same places, so their errors are another draw from the same
distribution. A wrong row at a border would be off by a thousandfold.
"""

from dataclasses import replace
from itertools import product

import pytest

pytestmark = pytest.mark.distributed
torch = pytest.importorskip("torch")

import sharded_models as ours
import three_way
from three_way import FLOAT32_ALLOWANCE, Error
from trnconv.models import Size, find
from trnconv.parallel import Options
from trnconv.pytorch import patched

MODELS = ("wan2.1", "cogvideox", "hunyuanvideo")
PHASES = ("decode", "encode")
SIZE = (9, 48, 40)  # frames, pixels: 6 x 5 latents
SMALL = (5, 24, 16)
LONG = (17, 48, 16)  # of several chunks, and bands of two latent rows on three ranks
CACHING = ("wan2.1", "cogvideox")
# Uneven, also with bands of one latent row or column.
CUTS = (
    ("rows", [1, 2]),
    ("rows", [1, 3, 2]),
    ("rows", [2, 1, 1, 2]),
    ("columns", [3, 2]),
    ("columns", [1, 3, 1]),
    ("columns", [2, 1, 1, 1]),
)
FLOAT32 = Options(backend="torch")


@pytest.fixture(scope="module")
def one_rank():
    """(exact, error of float32) of every model and phase, unpatched."""
    found = {}
    for case in product(MODELS, PHASES):
        exact = ours.alone(*case, torch.float64, SIZE)
        found[case] = exact, Error.of(ours.alone(*case, torch.float32, SIZE), exact)
    return found


@pytest.mark.parametrize(("axis", "shares"), CUTS)
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", MODELS)
def test_bands_are_as_near_to_the_exact_result_as_one_rank(
    ranks, one_rank, name, phase, axis, shares
):
    """In float32, half of the cuts with convolutions while halos travel."""
    exact, floor = one_rank[name, phase]
    options = replace(FLOAT32, overlap="always" if len(shares) % 2 else "auto")
    got = ranks.run(
        len(shares), ours.in_bands, name, phase, torch.float32, SIZE, axis, shares, options
    )
    for outcome in got:
        assert outcome.y.shape == exact.shape
        error = Error.of(outcome.y, exact)
        assert error.within(floor, FLOAT32_ALLOWANCE), f"{error}, floor {floor}"
    assert any(outcome.apart for outcome in got) == (options.overlap == "always")


@pytest.mark.parametrize("phase", PHASES)
def test_wan_has_identical_bits_in_reproducible_mode(ranks, phase):
    """Its norms are of channels, so no sum of it depends on the bands, or on what is split off."""
    plain = Options(backend="nkisim", reproducible=True)
    want = ours.alone("wan2.1", phase, torch.bfloat16, SMALL, plain)
    for overlap, axis, shares in (
        ("never", "rows", [1, 2]),
        ("always", "rows", [1, 2]),
        ("always", "rows", [1, 1, 1]),
        ("always", "columns", [1, 1]),
    ):
        options = replace(plain, overlap=overlap)
        got = ranks.run(
            len(shares),
            ours.in_bands,
            "wan2.1",
            phase,
            torch.bfloat16,
            SMALL,
            axis,
            shares,
            options,
        )
        assert all(torch.equal(outcome.y, want) for outcome in got)
        assert all(outcome.apart for outcome in got) == (overlap == "always")


@pytest.mark.parametrize(("name", "phase"), [("cogvideox", "decode"), ("hunyuanvideo", "encode")])
def test_models_with_group_norms_have_the_bits_of_one_rank_with_merged_statistics(
    ranks, name, phase
):
    """Statistics in float64, merged: how they were cut does not show in float32."""
    options = Options(backend="nkisim", reproducible=True, overlap="always")
    results = [
        outcome.y
        for axis, shares in (("rows", [1]), ("rows", [1, 2]), ("columns", [1, 1]))
        for outcome in ranks.run(
            len(shares), ours.in_bands, name, phase, torch.bfloat16, SMALL, axis, shares, options
        )
    ]
    assert all(torch.equal(y, results[0]) for y in results)


def test_in_bf16_and_default_mode_a_model_is_as_near_to_the_exact_result_as_torch(ranks):
    """HunyuanVideo: norms, attention and convolutions all have another order of sums."""
    case = ("hunyuanvideo", "encode")
    entry = find(case[0])
    size = Size("test", *SMALL)
    given = three_way.example(entry, "encode", size, reduced=True)
    exact, floor = (
        three_way.run(three_way.rounded_model(entry, dtype, reduced=True), entry, "encode", given)
        for dtype in (torch.float64, torch.bfloat16)
    )
    for overlap, axis, shares in (("never", "rows", [1, 2]), ("always", "columns", [1, 1])):
        options = Options(backend="nkisim", overlap=overlap)
        for outcome in ranks.run(
            len(shares), ours.in_bands, *case, torch.bfloat16, SMALL, axis, shares, options
        ):
            error = Error.of(outcome.y, exact)
            assert error.within(Error.of(floor, exact)), f"{error}"


def test_attention_is_gathered_and_nothing_else(ranks):
    expected = {
        "wan2.1": ("decoder.mid_block.attentions.0",),
        "cogvideox": (),
        "hunyuanvideo": ("decoder.mid_block",),
    }
    for name, modules in expected.items():
        first, _ = ranks.run(
            2, ours.in_bands, name, "decode", torch.float32, SIZE, "rows", None, FLOAT32
        )
        assert first.gathering == modules
        assert bool(first.times["gather"]) == bool(modules)
        assert bool(first.times["statistics"]) == (name != "wan2.1")


def rows_beyond(shape):
    """Rows that a thick band's outputs read above it and below it, of the input as it lies.

    By hand: three taps that keep the number of rows read one on each side, upsampled or not,
    whoever pads. With a stride of 2, the first output has a tap above if there is padding above,
    and the last one a tap below if there is none.
    """
    assert shape.kernel[1] in (1, 3)
    if shape.kernel[1] == 1:
        return 0, 0
    return (1, 1) if shape.stride[1] == 1 else (shape.pad_before[1], 1 - shape.pad_before[1])


def received_rows(shape, rank, count, exchange):
    above, below = rows_beyond(shape)
    if exchange == "permute":
        return above * (rank > 0) + below * (rank < count - 1)
    return (count - 1) * (above + below)  # everybody gets what one in the middle sends


def new_frames(work):
    """Frames that were not read before: a cache lies in front of them, in pieces of its own.

    HunyuanVideo's last tile of 1 + 20 frames is the last frame of the tile before: pixels lie where
    they lay.
    """
    if work.module == "encoder.conv_in.conv" and work.shape.size[0] == 1:
        return 0
    return work.pieces[-1] if work.pieces else work.shape.size[0]


@pytest.mark.parametrize("overlap", ["always", "never"])
@pytest.mark.parametrize("exchange", ["permute", "all_gather"])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", MODELS)
def test_halo_bytes_are_those_of_the_formula(ranks, name, phase, exchange, overlap):
    """For each call of each layer: rows x columns x channels x frames x bytes.

    Frames in a cache were sent when they were new; a copy of some of them is as good.
    """
    options = Options(backend="torch", exchange=exchange, overlap=overlap)
    entry, model, x, _ = ours.given(name, phase, torch.float32, LONG)
    with patched(model, backend="torch") as report:
        ours.run_phase(entry, model, phase, x)
    works = report.stats.works
    assert any(work.pieces for work in works) == (name in CACHING)
    count = 3
    got = ranks.run(count, ours.in_bands, name, phase, torch.float32, LONG, "rows", None, options)
    for rank, outcome in enumerate(got):
        expected = 0
        for work, calls in works.items():
            shape = work.shape
            rows = received_rows(shape, rank, count, exchange)
            row_bytes = shape.batch * shape.c_in * new_frames(work) * shape.size[2] * 4
            expected += calls * rows * row_bytes
        assert outcome.halo_bytes == expected > 0


def test_an_axis_of_a_mesh(ranks):
    exact = ours.alone("wan2.1", "decode", torch.float32, SMALL, FLOAT32)
    first, second, *others = ranks.run(4, ours.on_a_mesh, "wan2.1", "decode", SMALL)
    torch.testing.assert_close(first, exact)
    assert torch.equal(first, second)
    assert not torch.equal(first, others[0])
    assert torch.equal(*others)
