"""An imitation of vllm-omni-neuron's autoencoder: every site served, the same video, and back."""

import pytest

torch = pytest.importorskip("torch")

import imitated_omni
from imitated_omni import KERNEL_CALLS, ImitatedOmniVae
from trnconv.errors import UnsupportedError
from trnconv.integrations import vllm_omni_neuron as omni

pytestmark = [pytest.mark.torch, pytest.mark.integrations]
# A video of values around 1 from float32 sums in other orders: some hundred steps of 2**-24.
BOUND = 1e-4


@pytest.fixture(autouse=True)
def small_sites(monkeypatch):
    """Sites of few channels dispatch too, so that small models show what large ones do."""
    monkeypatch.setattr(imitated_omni.CausalConv3d, "least_channels", 8)
    monkeypatch.setattr(imitated_omni.LiftedConv2d, "least_channels", 8)
    KERNEL_CALLS.clear()


@pytest.fixture
def vae():
    torch.manual_seed(0)
    return ImitatedOmniVae().eval().requires_grad_(requires_grad=False)


def latent(frames=3):
    return torch.randn(1, 4, frames, 3, 4, generator=torch.Generator().manual_seed(1))


def video():
    return torch.randn(1, 3, 2, 8, 8, generator=torch.Generator().manual_seed(2))


def test_the_imitation_dispatches_as_theirs_does(vae):
    assert vae.prepare_nki_conv_dispatch("neuron") > 0
    vae.decode(latent(1))
    assert {shape[2] for shape in KERNEL_CALLS} == {1}  # of the first frame, lifted ones alone
    KERNEL_CALLS.clear()
    vae.decode(latent())
    assert len(KERNEL_CALLS) > 3


@pytest.mark.parametrize("backend", [None, "torch"])
def test_every_site_is_served_and_the_video_is_the_same(vae, backend):
    expected, coded = vae.decode(latent()), vae.encode(video())
    report = omni.install_(vae, backend=backend, lazy=True)
    assert vae.prepare_nki_conv_dispatch("neuron") == len(report.sites)
    KERNEL_CALLS.clear()
    with torch.no_grad():
        assert (vae.decode(latent()) - expected).abs().max() <= BOUND
        assert (vae.encode(video()) - coded).abs().max() <= BOUND
    assert KERNEL_CALLS == []
    assert report.patch.left_to_torch == ()
    served = {work.module for work in report.patch.stats.works}
    assert served == {entry.name for entry in report.patch.patched}
    assert "decoder.conv_in" in served
    assert {"decoder.up.time_conv", "decoder.attention.to_qkv", "encoder.1"} <= served
    assert str(report).startswith(f"{len(served)} convolutions on our kernels, 0 left to torch")


def test_without_lazy_tensors_the_video_is_the_same(vae):
    expected = vae.decode(latent())
    omni.install_(vae)
    vae.prepare_nki_conv_dispatch("neuron")
    KERNEL_CALLS.clear()
    assert (vae.decode(latent()) - expected).abs().max() <= BOUND
    assert KERNEL_CALLS == []


def test_sites_that_are_filtered_out_stay_torch_s(vae):
    omni.install_(vae, filter_fn=lambda name, _: name != "decoder.conv_in")
    kept = vae.decoder.conv_in._maybe_nki_forward(torch.zeros(1, 4, 3, 3, 4), [1, 1, 1, 1, 0, 0])
    taken = vae.decoder.conv_out._maybe_nki_forward(torch.zeros(1, 8, 3, 3, 4), [1] * 4 + [0, 0])
    assert kept is None
    assert taken.shape == (1, 3, 1, 3, 4)


def compiled_graphs(vae):
    """The video of a compiled decoder, and its graphs."""
    graphs = []

    def noting(graph, _):
        graphs.append(graph)
        return graph

    torch.compiler.reset()
    compiled = torch.compile(vae.decoder, backend=noting, fullgraph=True, dynamic=False)
    with torch.no_grad():
        return vae.decode(latent(), compiled), graphs


def test_a_compiled_decoder_has_convolutions_with_their_padding(vae):
    expected, before = compiled_graphs(vae)
    omni.install_(vae, backend="torch")
    vae.prepare_nki_conv_dispatch("neuron")
    KERNEL_CALLS.clear()
    video, graphs = compiled_graphs(vae)
    assert (video - expected).abs().max() <= BOUND
    assert KERNEL_CALLS == []
    assert len(graphs) == len(before)
    called = [str(node.target) for node in graphs[-1].graph.nodes if node.op == "call_function"]
    ours = [name for name in called if "trnconv" in name]
    convolutions = [each for each in vae.decoder.modules() if hasattr(each, "kernel_size")]
    assert len(ours) == len(convolutions)
    assert not [name for name in called if "pad" in name]


def test_uninstalling_leaves_nothing(vae):
    before = {name: dict(each.__dict__) for name, each in vae.named_modules()}
    vae.prepare_nki_conv_dispatch("neuron")
    expected = vae.decode(latent())
    omni.install_(vae)
    omni.uninstall_(vae)
    assert {name: set(each.__dict__) for name, each in vae.named_modules()} == {
        name: set(attributes) for name, attributes in before.items()
    }
    vae.prepare_nki_conv_dispatch("neuron")
    KERNEL_CALLS.clear()
    assert torch.equal(vae.decode(latent()), expected)
    assert KERNEL_CALLS


def test_other_models_and_served_ones_are_refused(vae):
    with pytest.raises(UnsupportedError, match=r"not vllm-omni-neuron's.*patch_"):
        omni.install_(torch.nn.Conv3d(3, 3, 1))
    omni.install_(vae)
    with pytest.raises(UnsupportedError, match="uninstall_ it first"):
        omni.install_(vae)
