"""Attention as an op: rules of torch.library, values, and launches on doubles of devices."""

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional

from repetition import few
from trnconv.errors import UnsupportedError
from trnconv.pytorch.operators.attention import attended, attention_op, attention_refusal

pytestmark = [pytest.mark.torch, pytest.mark.block]


def noise(*shape, seed=0):
    draws = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=draws).bfloat16()


def expected(q, k, v, frame_tokens=None, scale=None):
    """By torch, in float64, with a mask that is written out."""
    mask = None
    if frame_tokens:
        frame = torch.arange(q.shape[1]) // frame_tokens
        mask = frame[:, None] >= frame[None, :]
    q, k, v = q.double(), k.double(), v.double()
    return functional.scaled_dot_product_attention(q, k, v, mask, scale=scale)


def drawn(tokens=96, head=32, images=2):
    return tuple(noise(images, tokens, head, seed=seed) for seed in range(3))


@pytest.mark.parametrize("frame_tokens", [None, 32, 96])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_values_are_those_of_torch_in_float64(frame_tokens, scale):
    q, k, v = drawn()
    got = attended(q, k, v, frame_tokens, scale, "nkisim").double()
    want = expected(q, k, v, frame_tokens, scale)
    rounded = want.bfloat16().double()
    # Weights and o are rounded to bf16, scores are not: about twice the error of rounding o alone.
    assert (got - want).norm() <= 3 * (rounded - want).norm()


def test_a_frame_that_is_one_too_short_would_be_noticed():
    q, k, v = drawn()
    got = attended(q, k, v, 32, None, "nkisim").double()
    want = expected(q, k, v, 48)
    assert (got - want).norm() > 0.1 * want.norm()


def test_the_rules_of_torch_library_hold():
    q, k, v = drawn(tokens=8, head=8, images=1)
    torch.library.opcheck(attention_op, (q, k, v, 4, 0.5, "nkisim"))


@few(1)
def test_it_runs_on_a_device(on_device):
    q, k, v = drawn(tokens=64, images=1)
    got = attended(q, k, v, 32).double()
    want = expected(q, k, v, 32)
    assert (got - want).norm() <= 3 * (want.bfloat16().double() - want).norm()


@pytest.mark.parametrize(
    ("tensor", "frames", "backend", "words"),
    [
        (noise(1, 8, 8), None, "torch", "own operators"),
        (noise(1, 8, 8).float(), None, "nkisim", "dtype"),
        (noise(1, 8, 1024), None, "nkisim", "a head of 1024"),
        (noise(1, 9, 8), 4, "nkisim", "frames of 4"),
    ],
)
def test_what_no_kernel_does_is_said(tensor, frames, backend, words):
    assert words in attention_refusal(tensor, frames, backend)


def test_the_torch_backend_has_none():
    q, k, v = drawn(tokens=8, head=8, images=1)
    with pytest.raises(UnsupportedError, match="attention"):
        attended(q, k, v, backend="torch")
