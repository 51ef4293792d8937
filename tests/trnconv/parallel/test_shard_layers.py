"""Layers in bands, gradients through exchanges, refusals in words, and a rank that dies."""

import time

import pytest

pytestmark = pytest.mark.distributed
torch = pytest.importorskip("torch")

import sharded_models as ours
from ranks import Ranks
from small_vae import built, clip
from three_way import FLOAT32_ALLOWANCE, Error
from trnconv.parallel import Options, shard_
from trnconv.pytorch import patched

CUTS = (("rows", [1, 1]), ("rows", [1, 1, 1]), ("columns", [2, 1]))
BF16_UNIT = 2.0**-7  # between neighbours in bf16, of the larger one: at most
FP32_SUM = 2.0**-22  # of a sum of a few hundred float32 products, of their absolute values


def alone(options):
    results = {}
    for name, (model, x) in ours.layers().items():
        with patched(model, reproducible=options.reproducible, backend=options.backend):
            results[name] = model(x)
    return results


@pytest.mark.parametrize(
    ("exchange", "overlap"), [("permute", "never"), ("permute", "always"), ("all_gather", "always")]
)
def test_convolutions_have_identical_bits_in_reproducible_mode(ranks, exchange, overlap):
    """Padding of each mode, stride, dilation, upsampling, and a kernel wider than bands."""
    options = Options(backend="nkisim", reproducible=True, exchange=exchange, overlap=overlap)
    want = alone(options)
    for axis, shares in CUTS:
        for results in ranks.run(len(shares), ours.layers_in_bands, axis, shares, options):
            for name, y in results.items():
                assert torch.equal(y, want[name]), (name, axis, shares)


@pytest.mark.parametrize("overlap", ["never", "always"])
def test_convolutions_are_within_one_bf16_unit_in_default_mode(ranks, overlap):
    """Sums of float32 may have another order; rounded to bf16 once, they are neighbours at most."""
    options = Options(backend="nkisim", overlap=overlap)
    want = alone(options)
    for axis, shares in CUTS:
        for results in ranks.run(len(shares), ours.layers_in_bands, axis, shares, options):
            for name, y in results.items():
                ours_, one = y.double(), want[name].double()
                model, x = ours.layers()[name]
                model.layer.weight.abs_()
                model.layer.bias.abs_()
                sums = model.double()(x.abs().double())
                unit = BF16_UNIT * torch.maximum(ours_.abs(), one.abs())
                assert ((ours_ - one).abs() <= unit + FP32_SUM * sums).all(), (name, axis, shares)


@pytest.fixture(scope="module")
def exact_gradients():
    model, x = built().double(), clip().double().requires_grad_()
    y = model(x)
    y.square().sum().backward()
    return y.detach(), x.grad, {name: each.grad for name, each in model.named_parameters()}


def of_parameters(found, exact):
    """The error of all parameters together, each in units of its own largest gradient."""
    assert set(found) == set(exact)
    scales = {name: each.abs().max() for name, each in exact.items()}
    ours_, true = (
        torch.cat([each[name].double().flatten() / scales[name] for name in exact])
        for each in (found, exact)
    )
    return Error.of(ours_, true)


@pytest.fixture(scope="module")
def float32_errors(exact_gradients):
    """What float32 costs torch on one rank: result, gradient of the input, of the parameters."""
    model, x = built(), clip().requires_grad_()
    y = model(x)
    y.square().sum().backward()
    exact_y, exact_x, exact = exact_gradients
    gradients = {name: each.grad for name, each in model.named_parameters()}
    return (
        Error.of(y.detach(), exact_y),
        Error.of(x.grad, exact_x),
        of_parameters(gradients, exact),
    )


@pytest.mark.parametrize("exchange", ["permute", "all_gather"])
@pytest.mark.parametrize(
    ("axis", "shares"), [("rows", [1, 1]), ("rows", [1, 3, 2]), ("columns", [2, 1, 1, 1])]
)
def test_gradients_flow_through_exchanges(
    ranks, exact_gradients, float32_errors, axis, shares, exchange
):
    """Of a VAE with norms, attention, stride, upsampling, and padding of every mode.

    By the rule of `three_way`: errors of bands are another draw of as many roundings.
    """
    exact_y, exact_x, exact = exact_gradients
    got = ranks.run(len(shares), ours.small_vae, axis, shares, exchange, True)
    for y, of_x, gradients in got:
        errors = Error.of(y, exact_y), Error.of(of_x, exact_x), of_parameters(gradients, exact)
        for error, floor in zip(errors, float32_errors, strict=True):
            assert error.within(floor, FLOAT32_ALLOWANCE), f"{error}, floor {floor}"


def test_without_gradients_the_same_model_runs_on_lazy_tensors(
    ranks, exact_gradients, float32_errors
):
    for axis, shares in (("rows", [1, 3, 2]), ("columns", [2, 1, 1, 1])):
        for y, _, _ in ranks.run(len(shares), ours.small_vae, axis, shares, "auto", False):
            error = Error.of(y, exact_gradients[0])
            assert error.within(float32_errors[0], FLOAT32_ALLOWANCE), f"{error}"


@pytest.mark.parametrize(
    ("count", "what", "kind", "words"),
    [
        (2, "tiling", "UnsupportedError", "tiles and bands exclude each other"),
        (2, "axis", "UnsupportedError", "rows or columns"),
        (2, "shares", "ShapeError", "7 shares for 2 ranks"),
        (2, "exchange", "UnsupportedError", "auto, permute or all_gather"),
        (2, "overlap", "UnsupportedError", "auto, always, never"),
        (2, "double", "UnsupportedError", "float64"),
        (2, "transposed", "UnsupportedError", "transposed convolution over rows"),
        (4, "mesh", "UnsupportedError", r"mesh[name]"),
        (2, "dims", "UnsupportedError", "needs a DeviceMesh with 2 dimensions"),
        (2, "depth", "UnsupportedError", "height, width, or both"),
        (2, "pool", "UnsupportedError", "avg_pool2d"),
        (2, "mean", "UnsupportedError", "mean along rows"),
        (2, "slice", "UnsupportedError", "some of the rows"),
        (2, "bilinear", "UnsupportedError", "bilinear"),
        (2, "padded", "UnsupportedError", "only a convolution knows"),
    ],
)
def test_what_bands_cannot_do_is_refused_in_words(ranks, count, what, kind, words):
    """On every rank alike, and the group works on."""
    for found, text in ranks.run(count, ours.refused, what):
        assert (found, words in text) == (kind, True), text


def test_without_a_group_the_way_to_one_is_named():
    with pytest.raises(Exception, match="torchrun"):
        shard_(built())


@pytest.fixture
def four(tmp_path):
    """Ranks whose group is of no use afterwards."""
    started = Ranks(4, tmp_path)
    yield started
    started.end()


@pytest.fixture
def three(tmp_path):
    """Ranks that may be killed."""
    started = Ranks(3, tmp_path)
    yield started
    started.end()


def test_a_killed_rank_is_named_by_all_others(three, tmp_path):
    """In the middle of a decode, within the timeout."""
    timeout_s, victim = 10.0, 1
    three.send(3, ours.decode_until, 120.0, timeout_s, tmp_path)
    until = time.monotonic() + 60
    while not all((tmp_path / str(rank)).exists() for rank in range(3)):
        assert time.monotonic() < until
        time.sleep(0.05)
    three.kill(victim)
    killed = time.monotonic()
    answers = three.answers([0, 2], 2 * timeout_s)
    assert time.monotonic() - killed < timeout_s
    for worked, text in answers:
        assert not worked
        assert text.startswith("LostRankError"), text
        assert f"rank {victim} has given no sign of life" in text.splitlines()[0]


@pytest.mark.parametrize("shape", [(2, 2), (1, 4)])
def test_a_rank_that_is_late_is_named_with_where_it_is(four, shape):
    """It lives, and is at work: whoever waits for it says so when the timeout is over."""
    timeout_s, slow = 16.0, 3
    answers = four.run(4, ours.dawdle, slow, timeout_s, shape)
    waited = [answer for rank, answer in enumerate(answers) if rank != slow]
    named = [text for _, text in waited if f"rank {slow} is late: it is at work after" in text]
    gave_up = [text for _, text in waited if "has given no sign of life" in text]
    assert named
    assert len(named) + len(gave_up) == len(waited), waited
    assert max(seconds for seconds, _ in waited) < 2 * timeout_s


def test_a_rank_that_never_comes_is_named(three):
    three.send(3, ours.come_late, 2, 2.0)
    for worked, text in three.answers([0, 1], 20):
        assert not worked
        assert "rank 2 never came" in text
