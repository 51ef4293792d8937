"""Types of latents: what keeps to an error, what is refused, and latents within what is said."""

import pytest

from trnconv.corpus.latents.encoding import Encoder, EncoderSettings
from trnconv.corpus.latents.precision import DEFAULT_ERROR, DTYPES, chosen_precision, error_of
from trnconv.errors import UnsupportedError
from trnconv.models import models

ENCODERS = [entry.name for entry in models() if "encode" in entry.phases]


def test_by_default_latents_are_within_a_step_of_bf16_of_float32_s():
    for name in ENCODERS:
        precision = chosen_precision(name, "auto", None)
        assert (precision.model_dtype, precision.latent_dtype) == ("float32", "bfloat16")
        assert precision.accuracy == "direct"
        # rounding a latent once is off by half a step of eight bits; float32 adds next to nothing
        assert 2**-9 <= precision.error_at_most < 2**-9 + 1e-4 < DEFAULT_ERROR


def test_who_accepts_more_gets_cheaper_arithmetic_and_who_accepts_less_wider_latents():
    loose = chosen_precision("wan2.1", "auto", 0.05)
    assert (loose.model_dtype, loose.latent_dtype) == ("bfloat16", "bfloat16")
    assert 0.01 < loose.error_at_most <= 0.05
    tight = chosen_precision("wan2.1", "auto", 1e-5)
    assert (tight.model_dtype, tight.latent_dtype) == ("float32", "float32")


def test_errors_that_cannot_be_had_are_refused():
    with pytest.raises(UnsupportedError, match=r"1e-09 with wan2.1: float32 itself is off"):
        chosen_precision("wan2.1", "auto", 1e-9)
    with pytest.raises(UnsupportedError, match=r"with wan2.1 has an error by up to 0.*auto"):
        EncoderSettings(model="wan2.1", dtype="bfloat16", latent_error=0.01)
    with pytest.raises(UnsupportedError, match="from 0 to 1"):
        chosen_precision("wan2.1", "auto", 1.5)
    asked = chosen_precision("wan2.1", "bfloat16", None)  # who names a type has it
    assert asked.error_at_most == error_of("wan2.1", "bfloat16", "bfloat16")


def test_wider_types_have_smaller_errors():
    for name in ENCODERS:
        wide, *narrow = (error_of(name, dtype, dtype) for dtype in DTYPES)
        assert wide < 1e-4
        assert all(error is None or error > wide for error in narrow)
    with pytest.raises(UnsupportedError, match="that nobody has computed"):
        chosen_precision("cosmos1.0", "bfloat16", 0.1)  # torch cannot, on a CPU
    assert chosen_precision("cosmos1.0", "bfloat16", None).error_at_most is None


@pytest.mark.torch
@pytest.mark.parametrize(
    ("backend", "dtype"), [("torch", "auto"), ("nkisim", "auto"), ("torch", "bfloat16")]
)
def test_latents_are_as_near_to_float64_s_as_is_recorded(backend, dtype):
    """Three ways: diffusers' own model in float64, what is recorded, and what is encoded."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("diffusers")
    import numpy as np

    from trnconv.models import find
    from trnconv.pytorch import model_builder

    pixels = np.random.default_rng(0).integers(0, 256, (5, 16, 24, 3), dtype=np.uint8)
    settings = EncoderSettings(model="wan2.1", reduced=True, backend=backend, dtype=dtype)
    latents = Encoder(settings).encode(pixels)
    exact = model_builder.build(find("wan2.1"), reduced=True, dtype=torch.float64)
    video = torch.from_numpy(pixels).movedim(-1, 0)[None].double() * (2 / 255) - 1
    with torch.no_grad():
        wanted = exact.encode(video).latent_dist
    difference = torch.cat(
        [
            (latents[name].double() - value[0]).flatten()
            for name, value in (("mean", wanted.mean), ("logvar", wanted.logvar))
        ]
    )
    scale = torch.cat([wanted.mean.flatten(), wanted.logvar.flatten()]).square().mean().sqrt()
    error = float(difference.square().mean().sqrt() / scale)
    assert latents["mean"].dtype == torch.bfloat16
    assert error <= settings.precision.error_at_most
    # and a type that is narrower than what is recorded would be noticed
    assert (error > chosen_precision("wan2.1", "auto", None).error_at_most) == (dtype != "auto")
