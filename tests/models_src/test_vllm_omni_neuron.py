"""vllm-omni-neuron's own file, served: MODELS_SRC=... -m models_src.

Its classes are built small, into a decoder and an encoder of this test; its kernels, nki-library's,
are stand-ins that compute with torch and count their calls.
"""

import pytest

torch = pytest.importorskip("torch")

from torch import nn

from model_checkouts import Checkout, present
from trnconv.integrations import vllm_omni_neuron as omni

pytestmark = pytest.mark.models_src

# Values around 1 from float32 sums in other orders: some hundred steps of 2**-24.
BOUND = 1e-4
CALLS = []


def _kernel(x, filters, bias):
    CALLS.append(tuple(x.shape))
    weight = filters.permute(4, 3, 0, 1, 2)
    return torch.nn.functional.conv3d(x, weight, bias, padding=(0, 1, 1))


class _AnyModule(dict):
    """Attributes that a module is given: a class of the name for whatever is not said."""

    def __init__(self, names, **said):
        super().__init__({name: type(name, (), {}) for name in names.split()} | said)


OMNI = "vllm_omni.diffusion.distributed.autoencoders"
STAND_INS = {
    "nki": {"jit": lambda function: function},
    "nki.language": {"float32": None},
    "nkilib.core.attention.attention_cte": _AnyModule("attention_cte"),
    "nkilib.experimental.conv.conv3d": _AnyModule("conv3d"),
    "nkilib.experimental.conv.conv3d_temporal_unroll": _AnyModule(
        "conv3d_temporal_unroll",
        should_use_temporal_unroll=lambda *_: False,  # of few columns
    ),
    "vllm_neuron.envs": {"get_compile_backend_name": lambda: "eager"},
    f"{OMNI}.autoencoder_kl_wan": _AnyModule(
        "DistributedOperator DistributedVaeMixin GridSpec TileTask"
    ),
    f"{OMNI}.distributed_vae_executor": _AnyModule("DistributedVaeExecutor"),
    "vllm_omni_neuron.lite_compat": {
        "is_lite_runtime": lambda: False,
        "nki_op": lambda _: lambda function: function,
        "register_process_group_replica_groups": lambda *_: None,
    },
    "vllm_omni_neuron.diffusion.models.wan2_2.wan2_2_transformer": {
        "can_run_kernel": lambda _: True
    },
}
FILE = "vllm_omni_neuron/diffusion/distributed/autoencoders/autoencoder_kl_wan.py"


WIDTH = 80  # half of it is more than the 32 that they lift


class Small(nn.Module):
    """Their blocks around a latent of 4 channels, with the caches that they ask for."""

    def __init__(self, theirs):
        super().__init__()
        self.conv_in = theirs.WanCausalConv3d(4, WIDTH, 3, padding=1)
        self.block = theirs.WanResidualBlock(WIDTH, WIDTH)
        self.attention = theirs.WanAttentionBlock(WIDTH)
        self.up = theirs.WanResample(WIDTH, "upsample3d")
        self.late = theirs.WanResidualBlock(WIDTH // 2, WIDTH // 2)
        self.conv_out = theirs.WanCausalConv3d(WIDTH // 2, 3, 3, padding=1)
        self.down = theirs.WanResample(3, "downsample2d")

    def frame(self, x, cache, *, first):
        x = self.attention(self.block(self._cached(self.conv_in, x, cache, 0), cache, [1]))
        x = self.late(self.up(x, cache, [3], first_chunk=first), cache, [4])
        return self._cached(self.conv_out, x, cache, 6)

    @staticmethod
    def _cached(conv, x, cache, at):
        old, cache[at] = cache[at], torch.cat([cache[at], x], dim=2)[:, :, -2:]
        return conv(x, old)

    def forward(self, latent):
        n, _, frames, h, w = latent.shape
        widths = (4, *(WIDTH,) * 3, *(WIDTH // 2,) * 3)
        sizes = (1, 1, 1, 1, 2, 2, 2)
        cache = [
            latent.new_zeros(n, c, 2, h * s, w * s) for c, s in zip(widths, sizes, strict=True)
        ]
        made = [self.frame(latent[:, :, t : t + 1], cache, first=t == 0) for t in range(frames)]
        return self.down(torch.cat(made, dim=2))


@pytest.fixture
def model(monkeypatch):
    theirs = Checkout(f"vllm-omni-neuron/{FILE}", None, {}, {}, STAND_INS).module()
    for name, value in {"_VAE_NKI_CONV_MIN_CHANNELS": 8, "_vae_nki_conv3d": _kernel}.items():
        assert hasattr(theirs, name)
        monkeypatch.setattr(theirs, name, value)
    monkeypatch.setattr(theirs, "_vae_nki_conv3d_temporal_unroll", _kernel)
    CALLS.clear()
    torch.manual_seed(0)
    with present(STAND_INS):
        yield Small(theirs).eval().requires_grad_(requires_grad=False)


def packed(model):
    sites = [each for each in model.modules() if hasattr(each, "install_nki_dispatch")]
    return sum(site.install_nki_dispatch("neuron") for site in sites)


@pytest.mark.parametrize("lazy", [False, True])
def test_every_site_of_theirs_is_served(model, lazy):
    latent = torch.randn(1, 4, 3, 3, 4, generator=torch.Generator().manual_seed(1))
    expected = model(latent)
    assert packed(model) > 0
    model(latent)
    assert CALLS  # their dispatch takes some of the sites
    report = omni.install_(model, lazy=lazy, backend="torch")
    assert report.patch.left_to_torch == ()
    convolutions = [each for each in model.modules() if isinstance(each, (nn.Conv2d, nn.Conv3d))]
    assert len(report.patch.patched) == len(convolutions)
    CALLS.clear()
    assert (model(latent) - expected).abs().max() <= BOUND
    assert CALLS == []
    omni.uninstall_(model)
    packed(model)
    model(latent)
    assert CALLS


def test_what_their_code_dispatches_is_what_we_say_it_does(model, monkeypatch):
    """Calls of their kernels, and calls whose `route_of` is a kernel."""
    monkeypatch.setattr("trnconv.integrations.vllm_omni_neuron.routes._LEAST_CHANNELS", 8)
    packed(model)
    calls = omni.site_calls(model, lambda: model(torch.randn(1, 4, 3, 3, 4)))
    served = [call.name for call in calls if call.route.is_served]
    assert len(CALLS) == len(served)
    assert {"late.conv1", "late.conv2", "up.resample.1"} == set(served)
