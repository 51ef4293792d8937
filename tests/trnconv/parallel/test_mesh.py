"""Rectangles of a video on meshes of 2 x 2, 2 x 3 and 1 x 4 ranks: what one rank gives."""

from dataclasses import replace

import pytest

pytestmark = pytest.mark.distributed
torch = pytest.importorskip("torch")

import sharded_models as ours
from ranks import Ranks
from small_vae import built, clip
from three_way import FLOAT32_ALLOWANCE, Error
from trnconv.parallel import Options
from trnconv.pytorch import patched

MESHES = ((2, 2), (2, 3), (1, 4))
UNEVEN = {(2, 2): ([1, 2], [3, 2]), (2, 3): ([2, 1], [1, 1, 1]), (1, 4): ([1], [2, 1, 1, 1])}
MODELS = ("wan2.1", "cogvideox", "hunyuanvideo")
SIZE = (9, 48, 40)  # frames, pixels: 6 x 5 latents
SMALL = (5, 16, 32)
REPRODUCIBLE = Options(backend="nkisim", reproducible=True)


@pytest.fixture(scope="module")
def six(tmp_path_factory):
    started = Ranks(6, tmp_path_factory.mktemp("six"))
    yield started
    started.end()


@pytest.fixture
def on(request):
    """Ranks for a mesh: a DeviceMesh is made by all ranks of a world."""
    return lambda mesh: request.getfixturevalue("six" if mesh == (2, 3) else "ranks")


def run(on, mesh, function, *args):
    return on(mesh).run(mesh[0] * mesh[1], function, *args)


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize(
    ("exchange", "overlap"), [("permute", "never"), ("permute", "always"), ("all_gather", "always")]
)
def test_convolutions_have_identical_bits_in_reproducible_mode(on, mesh, exchange, overlap):
    """Padding of each mode, stride, dilation, upsampling, and a kernel wider than bands."""
    options = replace(REPRODUCIBLE, exchange=exchange, overlap=overlap)
    shares = None if mesh[1] == 4 else UNEVEN[mesh]
    want = {}
    for name, (model, x) in ours.layers(mesh[1] == 4).items():
        with patched(model, reproducible=True, backend="nkisim"):
            want[name] = model(x)
    for results in run(on, mesh, ours.layers_in_bands, mesh, shares, options):
        for name, y in results.items():
            assert torch.equal(y, want[name]), name


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("phase", ["decode", "encode"])
@pytest.mark.parametrize("name", MODELS)
def test_models_are_as_near_to_the_exact_result_as_one_rank(on, name, phase, mesh):
    """In float32, uneven, half of the meshes with convolutions while halos travel."""
    exact = ours.alone(name, phase, torch.float64, SIZE)
    floor = Error.of(ours.alone(name, phase, torch.float32, SIZE), exact)
    options = Options(backend="torch", overlap="always" if mesh == (2, 2) else "auto")
    case = (name, phase, torch.float32, SIZE, mesh, UNEVEN[mesh], options)
    got = run(on, mesh, ours.in_bands, *case)
    for outcome in got:
        assert outcome.y.shape == exact.shape
        error = Error.of(outcome.y, exact)
        assert error.within(floor, FLOAT32_ALLOWANCE), f"{error}, floor {floor}"
    assert any(outcome.apart for outcome in got) == (mesh == (2, 2))


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("phase", ["decode", "encode"])
def test_wan_has_identical_bits_in_reproducible_mode(on, phase, mesh):
    want = ours.alone("wan2.1", phase, torch.bfloat16, SMALL, REPRODUCIBLE)
    options = replace(REPRODUCIBLE, overlap="always")
    case = ("wan2.1", phase, torch.bfloat16, SMALL, mesh, None, options)
    for outcome in run(on, mesh, ours.in_bands, *case):
        assert torch.equal(outcome.y, want)


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize(("name", "phase"), [("cogvideox", "decode"), ("hunyuanvideo", "encode")])
def test_models_with_group_norms_have_the_bits_of_one_rank_with_merged_statistics(
    ranks, on, name, phase, mesh
):
    options = replace(REPRODUCIBLE, overlap="always")
    case = (name, phase, torch.bfloat16, SMALL)
    (want,) = ranks.run(1, ours.in_bands, *case, "rows", [1], options)
    for outcome in run(on, mesh, ours.in_bands, *case, mesh, None, options):
        assert torch.equal(outcome.y, want.y)


def test_wan_in_bf16_is_as_near_to_the_exact_result_as_torchs(ranks):
    """Default mode, bf16, and convolutions while halos travel, by the rule of `three_way`."""
    exact, floor = (
        ours.alone("wan2.1", "decode", dtype, SMALL) for dtype in (torch.float64, torch.bfloat16)
    )
    options = Options(backend="nkisim", overlap="always")
    case = ("wan2.1", "decode", torch.bfloat16, SMALL, (2, 2), None, options)
    for outcome in ranks.run(4, ours.in_bands, *case):
        error = Error.of(outcome.y, exact)
        assert error.within(Error.of(floor, exact)), f"{error}"


@pytest.mark.parametrize("exchange", ["permute", "all_gather"])
def test_gradients_flow_through_exchanges_of_both_directions(ranks, exchange):
    model, x = built().double(), clip().double().requires_grad_()
    y = model(x)
    y.square().sum().backward()
    single, given = built(), clip().requires_grad_()
    made = single(given)
    made.square().sum().backward()
    shares = ([3, 5], [1, 2])
    for got, of_x, gradients in ranks.run(4, ours.small_vae, (2, 2), shares, exchange, True):
        pairs = [(got, made.detach(), y.detach()), (of_x, given.grad, x.grad)]
        for found, torchs, exact in pairs:
            assert Error.of(found, exact).within(Error.of(torchs, exact), FLOAT32_ALLOWANCE)
        for name, each in model.named_parameters():
            scale = each.grad.abs().max()
            assert (gradients[name].double() - each.grad).abs().max() < 1e-4 * scale, name


def test_halo_bytes_are_those_of_both_directions_and_corners(ranks):
    """One 3 x 3 convolution of 2 x 2 ranks: a row, a column and a corner for each."""
    options = Options(backend="torch", overlap="never")
    got = ranks.run(4, ours.layer_halo_bytes, (2, 2), options)
    batch, channels, element_bytes = 2, 8, 2
    for received in got:
        assert received == (3 + 3 + 1) * batch * channels * element_bytes
