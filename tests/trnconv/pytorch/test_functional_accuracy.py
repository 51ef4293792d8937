"""What `accuracy` allows in the torch front end, and the ranges it depends on."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn

from neuron_doubles import FakeJit
from trnconv.algorithms.winograd.error import RangeError
from trnconv.errors import PlanError, TrnconvError, UnsupportedError
from trnconv.problem.policy import ALWAYS_DIRECT, Policy
from trnconv.pytorch import calibrate, causal_conv3d, functional, patch_, patched
from trnconv.pytorch.backends import adapters, choice, packed_weights
from trnconv.runtime.launch import Prepared
from trnconv.runtime.ranges import MARGIN, Ranges

pytestmark = pytest.mark.torch
ANY = Policy(least_macs=0)
LONG = 3e4  # within F(2,3)'s range, but not with a margin


def normal(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).bfloat16()


def video(frames=4):
    return normal(1, 128, frames, 20, 96)


def filters():
    return normal(128, 128, 3, 3, 3, seed=1), normal(128, seed=2)


class TwoLayers(nn.Module):
    """A causal convolution and a plain one."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv3d(128, 128, 3, padding=1)
        self.second = nn.Conv3d(128, 128, (1, 3, 3), padding=(0, 1, 1))

    def forward(self, x):
        return self.second(self.first(x))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return TwoLayers().bfloat16()


def transforms(report):
    return {
        one.work.module: getattr(one.price.plan.plan, "transform", "direct") for one in report.ran()
    }


def test_functions_differ_from_direct_ones_by_rounding_only():
    x, (w, bias) = video(), filters()
    direct = functional.conv3d(x, w, bias, padding=1, accuracy="direct")
    default = functional.conv3d(x, w, bias, padding=1)
    fast = functional.conv3d(x, w, bias, padding=1, accuracy=ANY)
    assert torch.equal(default, direct)  # too small to look for a fast algorithm
    assert not torch.equal(fast, direct)
    exact = nn.functional.conv3d(x.double(), w.double(), bias.double(), padding=1)
    floor = (exact.bfloat16() - exact).square().mean()
    assert (fast - exact).square().mean() < 1.05**2 * floor


def test_an_unknown_accuracy_is_refused():
    x, (w, bias) = video(3), filters()
    with pytest.raises(PlanError, match="one of direct, bf16, fast, fastest, half"):
        functional.conv3d(x, w, bias, accuracy="exact")


def test_with_gradients_nothing_is_given():
    x, (w, bias) = video(3).requires_grad_(), filters()
    found = functional.conv3d(x, w, bias, padding=(0, 1, 1), accuracy=ANY)
    direct = functional.conv3d(x, w, bias, padding=(0, 1, 1), accuracy="direct")
    assert torch.equal(found, direct)


@pytest.mark.parametrize("cut", [1, 3])
def test_chunks_of_a_video_have_the_bits_of_the_whole(cut):
    x, (w, bias) = normal(1, 128, 4, 48, 64), filters()
    options = {"padding": 1, "reproducible": True, "accuracy": ANY}
    whole, _ = causal_conv3d(x, w, bias, **options)
    first, cache = causal_conv3d(x[:, :, :cut], w, bias, **options)
    second, _ = causal_conv3d(x[:, :, cut:], w, bias, cache, **options)
    assert torch.equal(torch.cat([first, second], dim=2), whole)
    direct, _ = causal_conv3d(x, w, bias, padding=1, reproducible=True, accuracy="direct")
    assert not torch.equal(whole, direct)


def test_a_patched_model_takes_fast_algorithms_and_says_so(model):
    x = video()
    with torch.no_grad(), patched(model, accuracy=ANY) as report:
        found = model(x)
        assert transforms(report) == {"first": "F(2,3)", "second": "F(2,3)"}
        assert "F(2,3)" in str(report)
    with torch.no_grad(), patched(model, accuracy="direct") as report:
        direct = model(x)
        assert transforms(report) == {"first": "direct", "second": "direct"}
        assert "F(2,3)" not in str(report)
    with torch.no_grad():
        exact = model.double()(x.double())
    errors = [(one - exact).square().mean() for one in (found, direct)]
    assert errors[0] < 1.1**2 * errors[1]


def test_ranges_are_sampled_by_name_and_restored(model):
    x = video()
    ranges = calibrate(model, lambda it: it(x))
    assert set(ranges.largest) == {"first", "second"}
    assert ranges.largest["first"] == x.abs().max()
    assert not any(module._forward_pre_hooks for module in model.modules())
    with patched(model), pytest.raises(UnsupportedError, match=r"first.*before patch_"):
        calibrate(model, lambda it: it(x))
    with pytest.raises(TrnconvError, match="Inf or NaN"):
        calibrate(model, lambda it: it(x / 0))


def test_a_layer_outside_its_range_or_not_sampled_stays_direct(model):
    x = video()
    ranges = Ranges({"first": LONG})
    assert LONG < 32752 < MARGIN * LONG
    with torch.no_grad(), patched(model, accuracy=ANY, ranges=ranges) as report:
        model(x)
    assert transforms(report) == {"first": "direct", "second": "direct"}
    with torch.no_grad(), patched(model, accuracy=ANY, ranges=Ranges({"first": 8.0})) as report:
        model(x)
    assert transforms(report) == {"first": "F(2,3)", "second": "direct"}


def test_data_outside_the_range_is_refused_where_somebody_looks(model):
    x = video()
    x[0, 0, 0, 0, 0] = 40e3
    patch_(model, accuracy=ANY)
    with torch.no_grad(), pytest.raises(RangeError, match="32752"):
        model(x)


@pytest.fixture
def on_device(monkeypatch):
    jit = FakeJit()
    monkeypatch.setattr(choice, "NEURON_DEVICES", ("cpu",))
    adapters.use_adapter(adapters.XlaAdapter(jit, cores=1, machine="trn2"))
    yield jit
    adapters.use_adapter(None)
    packed_weights.forget_packed_weights()


@pytest.mark.parametrize("pieces", [1, 2, 3])
def test_a_device_runs_fast_kernels_of_calibrated_layers(on_device, pieces, monkeypatch):
    x, (w, bias) = video(), filters()
    known = Policy(x_max=16.0, least_macs=0)
    cuts = {1: (video(8), None), 2: (x[:, :, 2:], (x[:, :, :2],))}
    cuts[3] = (x[:, :, 2:], (x[:, :, :1], x[:, :, 1:2]))
    chunk, cache = cuts[pieces]
    packings = []
    kept = Prepared.pack
    monkeypatch.setattr(Prepared, "pack", lambda *given: packings.append(1) or kept(*given))
    for _ in range(2):
        found, _ = causal_conv3d(chunk, w, bias, cache, padding=1, accuracy=known)
    names = [name for name, _ in on_device.called]
    assert names == [f"winograd_of_{('one', 'two', 'three')[pieces - 1]}"] * 2
    assert len(packings) == 1
    monkeypatch.setattr(choice, "NEURON_DEVICES", ())
    expected, _ = causal_conv3d(chunk, w, bias, cache, padding=1, accuracy=known, backend="nkisim")
    assert torch.equal(found, expected)


def test_a_device_computes_directly_what_nobody_calibrated(on_device):
    x, (w, bias) = video(), filters()
    functional.conv3d(x, w, bias, padding=1, accuracy=ANY)
    assert [name for name, _ in on_device.called] == ["forward"]


def test_the_report_prices_what_ran(model):
    with torch.no_grad(), patched(model, accuracy=ANY) as report:
        model(video())
    assert all(one.price.plan.plan.algorithm == "winograd" for one in report.ran())
    assert all(work.policy != ALWAYS_DIRECT for work in report.stats.works)
