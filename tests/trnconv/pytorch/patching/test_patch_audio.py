"""Vocoders and codecs' decoders, patched: every line on our kernels, whole and in chunks."""

import pytest

torch = pytest.importorskip("torch")

from imitated_audio import AUDIO, CODECS, built
from trnconv.pytorch import patch_, patched, unpatch_
from trnconv.pytorch.lazy.base.frame_by_frame import on_each_frame

# torch calls its older weight_norm old; models still have it, Stable Audio's among them.
pytestmark = [
    pytest.mark.audio,
    pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning"),
]

FLOAT32 = 2**-24
FRAMES = 12
DEEPEST = 80  # of the layers that an output passes: four a dilation, three, two blocks, two levels
MOST_TERMS = 128  # of one sum: 16 channels under 8 taps
TRANSPOSED_OF_OOBLECK = 5


def codes(frames=FRAMES, seed=1):
    return torch.randn(1, 8, frames, generator=torch.Generator().manual_seed(seed))


def within_rounding(found, expected, layers=DEEPEST):
    """Each layer rounds its sums, a term at a time, in both: errors add up along the layers."""
    bound = 2 * layers * MOST_TERMS * FLOAT32 * expected.abs().max()
    return (found - expected).abs().max() <= bound


@pytest.mark.parametrize("name", AUDIO)
def test_every_convolution_is_taken_and_values_stay(name):
    model = built(name)
    with torch.no_grad():
        expected = model(codes())
        with patched(model, backend="nkisim") as report:
            samples = model(codes())
        assert report.patched
        assert not report.left_to_torch
        assert samples.shape == expected.shape
        assert within_rounding(samples, expected)
        assert torch.equal(model(codes()), expected)


# Activations behind convolutions, and sums. In a vocoder, the first of a pair is of what is added,
# too: it is torch's. Codecs of this structure add nothing. What transposed ones make is torch's.
FUSED = {
    "hifi-gan": ("leaky_relu:0.1", 12, 12),  # two levels of two blocks of three dilations
    "bigvgan": ("snake", 0, 12),
    "encodec": ("elu", 8 + 1, 0),  # two levels of two dilations, two convolutions each
    "mimi": ("elu", 8 + 1, 0),
    "dac": ("snake", 0, 0),
}


@pytest.mark.parametrize("name", FUSED)
def test_activations_and_sums_are_epilogues_of_convolutions(name):
    model, (activation, ends, sums) = built(name), FUSED[name]
    with torch.no_grad(), patched(model, backend="nkisim") as report:
        model(codes())
    works = report.stats.works.items()
    assert sum(calls for work, calls in works if work.epilogue.activation == activation) == ends
    assert sum(calls for work, calls in works if work.epilogue.residual == "before") == sums
    assert not report.stats.repeated


@pytest.mark.parametrize("name", AUDIO)
def test_the_bound_notices_a_tap_that_is_missing(name):
    model = built(name)
    with torch.no_grad():
        expected = model(codes())
        weights = [weight for weight in model.parameters() if weight.dim() == 3]
        weights[-1][..., -1] = 0
        assert not within_rounding(model(codes()), expected)


@pytest.mark.parametrize("cuts", [(1,) * FRAMES, (1, 4, 7), (6, 6)])
@pytest.mark.parametrize("name", CODECS)
def test_chunks_have_the_bits_of_the_whole_in_the_reproducible_mode(name, cuts):
    model = built(name)
    patch_(model, reproducible=True, backend="nkisim")
    with torch.no_grad():
        whole = model(codes())
        chunks = [
            model(chunk, go_on=at > 0) for at, chunk in enumerate(codes().split(list(cuts), 2))
        ]
    unpatch_(model)
    assert torch.equal(torch.cat(chunks, 2), whole)


def test_bits_of_lines_do_not_depend_on_their_length():
    x = torch.randn(1, 3, 5001)
    for name in ("elu", "sin"):
        operator = getattr(torch.ops.aten, name).default
        whole = on_each_frame(f"aten::{name}", operator, (x,), {})
        parts = [
            on_each_frame(f"aten::{name}", operator, (part,), {}) for part in x.split(7, dim=2)
        ]
        assert torch.equal(torch.cat(parts, 2), whole)
        assert torch.allclose(whole, operator(x))


def test_the_autoencoder_of_stable_audio():
    from diffusers import AutoencoderOobleck

    torch.manual_seed(0)
    model = AutoencoderOobleck(
        encoder_hidden_size=8,
        downsampling_ratios=[2, 2, 2, 2, 2],
        channel_multiples=[1, 1, 2, 2, 2],
        decoder_channels=8,
        decoder_input_channels=4,
    )
    model = model.eval().requires_grad_(requires_grad=False)
    latent = torch.randn(1, 4, FRAMES, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = model.decode(latent).sample
        with patched(model, backend="nkisim") as report:
            samples = model.decode(latent).sample
    assert not report.left_to_torch
    transposed = [
        name for name, module in model.named_modules() if "ConvTranspose" in type(module).__name__
    ]
    assert len(transposed) == TRANSPOSED_OF_OOBLECK
    assert within_rounding(samples, expected, 4 * DEEPEST)
