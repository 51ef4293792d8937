"""Calls of a decode as the dispatch sees them, chunk by chunk, and their modelled times."""

import pytest

torch = pytest.importorskip("torch")

from imitated_omni import ImitatedOmniVae
from trnconv.errors import ShapeError
from trnconv.integrations import vllm_omni_neuron as omni

pytestmark = [pytest.mark.torch, pytest.mark.integrations]


@pytest.fixture(scope="module")
def chunks():
    with torch.device("meta"):
        vae = ImitatedOmniVae(z=16, width=192).eval()
        latent = torch.empty(1, 16, 3, 6, 40)
    with torch.no_grad():
        return omni.chunks_of(omni.site_calls(vae, lambda: vae.decode(latent)))


@pytest.mark.parametrize("is_served", [False, True])
def test_a_report_has_sites_before_and_after_and_modelled_times(chunks, is_served):
    with torch.device("meta"):
        vae = ImitatedOmniVae(z=16, width=192).eval().requires_grad_(requires_grad=False)
        latent = torch.empty(1, 16, 3, 6, 40)
    if is_served:
        omni.install_(vae)
    with torch.no_grad():
        first, steady = omni.chunk_reports(vae, lambda: vae.decode(latent))
    assert (first.sites, first.before) == (len(chunks[0]), 1)
    assert (steady.sites, steady.before) == (len(chunks[2]), 3)
    assert first.modelled_ns == sum(omni.modelled_ns(chunks[0]))
    assert steady.modelled_ns == sum(omni.modelled_ns(chunks[2]))
    ms = f"{steady.modelled_ns / 1e6:.2f}"
    assert f"on kernels 3 before and {steady.sites} after; {ms} ms modelled (trn2" in str(steady)


def test_a_decode_without_a_steady_chunk_is_refused():
    with torch.device("meta"):
        vae, latent = ImitatedOmniVae(z=16, width=192).eval(), torch.empty(1, 16, 2, 6, 40)
    with torch.no_grad(), pytest.raises(ShapeError, match="2 chunks: a steady one is the third"):
        omni.chunk_reports(vae, lambda: vae.decode(latent))


def test_a_chunk_is_a_latent_frame_with_its_cache(chunks):
    assert len(chunks) == 3
    first, second, steady = ({call.name: call.shape for call in chunk} for chunk in chunks)
    assert "decoder.up.time_conv" not in first
    assert second == steady
    assert steady["decoder.mid.conv1"].size == (3, 6, 40)  # two cached frames and one
    assert steady["decoder.mid.conv1"].pad_before == (0, 1, 1)
    assert steady["decoder.late.conv2"].size == (4, 12, 80)
    assert steady["decoder.up.conv"].batch == 2  # frames are images there
    assert first["decoder.late.conv1"].out_sizes() == (1, 12, 80)


def test_what_they_serve_of_a_chunk(chunks):
    first, _, steady = ({call.name for call in chunk if call.route.is_served} for chunk in chunks)
    assert first == {"decoder.up.conv"}
    assert steady == {"decoder.up.conv", "decoder.late.conv1", "decoder.late.conv2"}


def test_every_call_has_a_modelled_time(chunks):
    times = omni.modelled_ns(chunks[2])
    assert len(times) == len(chunks[2])
    assert min(times) > 0
    by_name = {call.name: ns for call, ns in zip(chunks[2], times, strict=True)}
    assert by_name["decoder.late.conv1"] == by_name["decoder.late.conv2"]
