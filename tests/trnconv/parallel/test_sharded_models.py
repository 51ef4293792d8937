"""Models of the registry in bands, on 2 to 4 ranks: what one rank gives, and what is sent."""

import pytest

pytestmark = pytest.mark.distributed
torch = pytest.importorskip("torch")

import sharded_models as ours
from trnconv.parallel import Options
from trnconv.pytorch import patched

MODELS = ("wan2.1", "cogvideox", "hunyuanvideo")
PHASES = ("decode", "encode")
SIZE = (9, 48, 40)  # frames, pixels: 6 x 5 latents
SMALL = (5, 24, 16)
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
    """(exact, in float32) of every model and phase: in float64 as it is, and patched."""
    return {
        (name, phase): (
            ours.alone(name, phase, torch.float64, SIZE),
            ours.alone(name, phase, torch.float32, SIZE, FLOAT32),
        )
        for name in MODELS
        for phase in PHASES
    }


@pytest.mark.parametrize(("axis", "shares"), CUTS)
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", MODELS)
def test_bands_are_as_near_to_the_exact_result_as_one_rank(
    ranks, one_rank, name, phase, axis, shares
):
    """Both are float32 runs of one model; a wrong row at a border would be off by a millionfold.

    Rounding errors are drawn anew where an order of sums differs, so the largest of some thousand
    varies; twice that of one rank is beyond any such draw.
    """
    exact, alone = one_rank[name, phase]
    allowed = 2 * (alone - exact).abs().max()
    got = ranks.run(
        len(shares), ours.in_bands, name, phase, torch.float32, SIZE, axis, shares, FLOAT32
    )
    for y, _, _, _ in got:
        assert y.shape == exact.shape
        assert (y - exact).abs().max() <= allowed


@pytest.mark.parametrize("phase", PHASES)
def test_wan_has_identical_bits_in_reproducible_mode(ranks, phase):
    """Its norms are of channels, so no sum of it depends on the bands."""
    options = Options(backend="nkisim", reproducible=True)
    want = ours.alone("wan2.1", phase, torch.bfloat16, SMALL, options)
    for axis, shares in (("rows", [1, 2]), ("rows", [1, 1, 1]), ("columns", [1, 1])):
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
        assert all(torch.equal(y, want) for y, _, _, _ in got)


@pytest.mark.parametrize(("name", "phase"), [("cogvideox", "decode"), ("hunyuanvideo", "encode")])
def test_models_with_group_norms_have_the_bits_of_one_rank_with_merged_statistics(
    ranks, name, phase
):
    """Statistics in float64, merged: how they were cut does not show in float32."""
    options = Options(backend="nkisim", reproducible=True)
    results = [
        y
        for axis, shares in (("rows", [1]), ("rows", [1, 2]), ("columns", [1, 1]))
        for y, _, _, _ in ranks.run(
            len(shares), ours.in_bands, name, phase, torch.bfloat16, SMALL, axis, shares, options
        )
    ]
    assert all(torch.equal(y, results[0]) for y in results)


def test_in_bf16_and_default_mode_a_model_is_as_near_to_the_exact_result_as_on_one_rank(ranks):
    """HunyuanVideo: norms, attention and convolutions all have another order of sums."""
    options = Options(backend="nkisim")
    case = ("hunyuanvideo", "encode")
    exact = ours.alone(*case, torch.float64, SMALL)
    allowed = 2 * (ours.alone(*case, torch.bfloat16, SMALL, options) - exact).abs().max()
    for axis, shares in (("rows", [1, 2]), ("columns", [1, 1])):
        for y, _, _, _ in ranks.run(
            len(shares), ours.in_bands, *case, torch.bfloat16, SMALL, axis, shares, options
        ):
            assert (y - exact).abs().max() <= allowed


def test_attention_is_gathered_and_nothing_else(ranks):
    expected = {
        "wan2.1": ("decoder.mid_block.attentions.0",),
        "cogvideox": (),
        "hunyuanvideo": ("decoder.mid_block",),
    }
    for name, modules in expected.items():
        ((_, _, times, gathering), _) = ranks.run(
            2, ours.in_bands, name, "decode", torch.float32, SIZE, "rows", None, FLOAT32
        )
        assert gathering == modules
        assert bool(times["gather"]) == bool(modules)
        assert bool(times["statistics"]) == (name != "wan2.1")


def received_rows(shape, rank, count):
    """Rows of the input of one convolution that a rank gets from others, if all bands are thick.

    By hand: three taps with a row of padding on both sides read one row beyond each border of a
    band, upsampled or not; with a stride of 2, the tap below the last output is the band's own.
    """
    if shape.kernel[1] == 1:
        return 0
    assert shape.kernel[1] == 3
    above, below = rank > 0, rank < count - 1 and shape.stride[1] == 1
    return above + below


def widest_edge(shape, count):
    """Rows that the rank with most neighbours sends."""
    both = shape.stride[1] == 1 and count > 2
    return (2 if both else 1) if shape.kernel[1] > 1 else 0


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("exchange", ["permute", "all_gather"])
def test_halo_bytes_are_those_of_the_formula(ranks, phase, exchange):
    """HunyuanVideo: no caches, so that every convolution asks for its halo once, and only once."""
    options = Options(backend="torch", exchange=exchange)
    entry, model, x, _ = ours.given("hunyuanvideo", phase, torch.float32, SIZE)
    with patched(model, backend="torch") as report:
        ours.run_phase(entry, model, phase, x)
    count = 3
    got = ranks.run(
        count, ours.in_bands, "hunyuanvideo", phase, torch.float32, SIZE, "rows", None, options
    )
    for rank, (_, received, _, _) in enumerate(got):
        expected = 0
        for work, calls in report.book.works.items():
            shape = work.shape
            rows = received_rows(shape, rank, count)
            if exchange == "all_gather":
                rows = (count - 1) * widest_edge(shape, count)
            row_bytes = shape.batch * shape.c_in * shape.size[0] * shape.size[2] * 4
            expected += calls * rows * row_bytes
        assert received == expected > 0


def test_an_axis_of_a_mesh(ranks):
    exact = ours.alone("wan2.1", "decode", torch.float32, SMALL, FLOAT32)
    first, second, *others = ranks.run(4, ours.on_a_mesh, "wan2.1", "decode", SMALL)
    torch.testing.assert_close(first, exact)
    assert torch.equal(first, second)
    assert not torch.equal(first, others[0])
    assert torch.equal(*others)
