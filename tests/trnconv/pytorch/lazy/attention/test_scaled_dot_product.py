"""Attention of patched models: which calls are kernels, which masks are known, and values."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from trnconv.pytorch import patch_
from trnconv.pytorch.lazy.tensors.context import ALL_REWRITES
from trnconv.pytorch.operators.attention import ATTENTION_OP
from trnconv.pytorch.patching import patched
from trnconv.pytorch.step_log import StepLog
from trnconv.traces.groups import operations_of

pytestmark = [pytest.mark.torch, pytest.mark.block]

CHANNELS, FRAMES, ROWS, COLUMNS = 16, 3, 4, 5
INFINITY = float("inf")


def by_indices(frames, plane, dtype, device):
    """As HunyuanVideo's."""
    of_token = torch.arange(1, frames + 1, dtype=torch.int32, device=device)
    of_token = of_token.repeat_interleave(plane)
    keys, queries = torch.meshgrid(of_token, of_token, indexing="xy")
    return torch.where(keys <= queries, 0, -INFINITY).to(dtype=dtype)


def side_by_side(frames, plane, dtype, device):
    """Asked from the other side, and broadcast."""
    of_token = torch.arange(frames, device=device).repeat_interleave(plane)
    return torch.where(of_token[:, None] >= of_token[None, :], 0, -INFINITY).to(dtype)


def below_the_next(frames, plane, dtype, device):
    """Less than the number of the next frame."""
    of_token = torch.arange(frames, device=device).repeat_interleave(plane)
    keys, queries = torch.meshgrid(of_token, of_token + 1, indexing="xy")
    return keys < queries


def by_rows(frames, plane, dtype, device):
    """As HunyuanVideo 1.5's."""
    tokens = frames * plane
    mask = torch.full((tokens, tokens), -INFINITY, dtype=dtype, device=device)
    for token in range(tokens):
        mask[token, : (token // plane + 1) * plane] = 0
    return mask


def by_tokens(frames, plane, dtype, device):
    """Frames of one token."""
    of_token = torch.arange(frames * plane, device=device)
    keys, queries = torch.meshgrid(of_token, of_token, indexing="xy")
    return torch.where(keys <= queries, 0, -INFINITY).to(dtype)


FOUND = {
    "indices": by_indices,
    "side by side": side_by_side,
    "booleans": below_the_next,
    "rows": by_rows,
    "tokens": by_tokens,
}


def of_the_future(frames, plane, dtype, device):
    of_token = torch.arange(frames, device=device).repeat_interleave(plane)
    keys, queries = torch.meshgrid(of_token, of_token, indexing="xy")
    return torch.where(keys >= queries, 0, -INFINITY).to(dtype)


def one_number_more(frames, plane, dtype, device):
    mask = by_rows(frames, plane, dtype, device)
    mask[2, plane + 1] = 0
    return mask


def one_row_less(frames, plane, dtype, device):
    mask = by_rows(frames, plane, dtype, device)
    mask[plane + 3] = -INFINITY
    mask[plane + 3, :plane] = 0
    return mask


def one_write_for_two_rows(frames, plane, dtype, device):
    tokens = frames * plane
    mask = torch.full((tokens, tokens), -INFINITY, dtype=dtype, device=device)
    mask.view(-1)[: 2 * tokens] = 0
    for token in range(2, tokens):
        mask[token] = 0
    mask[1, 1:] = -INFINITY
    return mask


def large_and_finite(frames, plane, dtype, device):
    of_token = torch.arange(frames, device=device).repeat_interleave(plane)
    keys, queries = torch.meshgrid(of_token, of_token, indexing="xy")
    return torch.where(keys <= queries, 0.0, -2.0).to(dtype)


def changed_indices(frames, plane, dtype, device):
    of_token = torch.arange(frames, device=device).repeat_interleave(plane)
    of_token[0] = 1
    keys, queries = torch.meshgrid(of_token, of_token, indexing="xy")
    return torch.where(keys <= queries, 0, -INFINITY).to(dtype)


def copied_while_it_grows(frames, plane, dtype, device):
    mask = torch.full((frames * plane, frames * plane), -INFINITY, dtype=dtype, device=device)
    mask[:, 0] = 0
    before = mask[None, None].clone()
    for token in range(plane * frames):
        mask[token, : (token // plane + 1) * plane] = 0
    return before[0, 0]


def in_other_types(frames, plane, dtype, device):
    mask = by_indices(frames, plane, dtype, device)
    return mask.to(torch.float32).clamp_min(-3.0).to(dtype)


OTHERS = {
    "future": of_the_future,
    "one more": one_number_more,
    "one less": one_row_less,
    "two rows": one_write_for_two_rows,
    "finite": large_and_finite,
    "changed": changed_indices,
    "copied": copied_while_it_grows,
    "clamped": in_other_types,
}


class Middle(nn.Module):
    """A convolution, attention over all positions, a convolution."""

    def __init__(self, mask=None, heads=1, **options):
        super().__init__()
        self.mask, self.heads, self.options = mask, heads, options
        self.first = nn.Conv3d(CHANNELS, 3 * CHANNELS, 1)
        self.last = nn.Conv3d(CHANNELS, CHANNELS, 1)

    def forward(self, x):
        images, _, *sizes = x.shape
        tokens = self.first(x).permute(0, 2, 3, 4, 1).flatten(1, 3)
        q, k, v = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in tokens.chunk(3, dim=-1)
        )
        mask = None
        if self.mask is not None:
            mask = self.mask(sizes[0], sizes[1] * sizes[2], x.dtype, x.device)
            mask = mask.unsqueeze(0).expand(images, -1, -1).unsqueeze(1)
        seen = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, **self.options)
        seen = seen.transpose(1, 2).flatten(2)
        return self.last(seen.unflatten(1, sizes).permute(0, 4, 1, 2, 3))


class Seen(TorchDispatchMode):
    """Names of the operators that run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func._schema.name)
        return func(*args, **(kwargs or {}))


def noise(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(3)).bfloat16()


def ran(model, x):
    """What a patched model gives, and how often our kernel ran for it."""
    with torch.no_grad(), patched(model, backend="nkisim"), Seen() as seen:
        result = model(x)
    return result, seen.names.count(ATTENTION_OP)


def errors(model, x):
    """Of the patched model and of torch's, against float64; and kernels that ran."""
    torch.manual_seed(0)
    model = model.bfloat16()
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(x.double())
        by_torch = model(x)
        ours, kernels = ran(model, x)
    return (ours - exact).norm() / exact.norm(), (by_torch - exact).norm() / exact.norm(), kernels


@pytest.mark.parametrize("name", FOUND)
def test_a_mask_that_is_causal_by_frame_is_found(name):
    ours, by_torch, kernels = errors(Middle(FOUND[name]), noise(1, CHANNELS, FRAMES, ROWS, COLUMNS))
    assert kernels == 1
    assert ours <= 1.25 * by_torch  # a hundred elements or so: noise of two roundings


@pytest.mark.parametrize("name", OTHERS)
def test_any_other_mask_is_torchs(name):
    ours, by_torch, kernels = errors(
        Middle(OTHERS[name]), noise(1, CHANNELS, FRAMES, ROWS, COLUMNS)
    )
    assert kernels == 0
    assert ours <= 1.25 * by_torch


@pytest.mark.parametrize("model", [Middle(), Middle(heads=2), Middle(scale=0.1)])
@pytest.mark.parametrize("images", [1, 2])
def test_attention_without_a_mask_is_a_kernel(model, images):
    ours, by_torch, kernels = errors(model, noise(images, CHANNELS, 2, ROWS, COLUMNS))
    assert kernels == 1
    assert ours <= 1.25 * by_torch


def test_masks_of_several_images():
    ours, by_torch, kernels = errors(
        Middle(by_indices, heads=2), noise(2, CHANNELS, FRAMES, ROWS, COLUMNS)
    )
    assert kernels == 1
    assert ours <= 1.25 * by_torch


def test_what_the_kernel_does_not_do_is_torchs():
    model, x = Middle(is_causal=True), noise(1, CHANNELS, 2, 3, 3)
    ours, by_torch, kernels = errors(model, x)
    assert kernels == 0
    assert ours <= 1.25 * by_torch
    wide = copy.deepcopy(Middle()).float()
    assert ran(wide, x.float())[1] == 0


def test_reproducible_and_torch_backends_have_torchs():
    model, x = Middle(by_indices).bfloat16(), noise(1, CHANNELS, 2, 3, 3)
    with torch.no_grad():
        want = model(x)
        for options in ({"reproducible": True, "backend": "nkisim"}, {"backend": "torch"}):
            with patched(model, **options), Seen() as seen:
                got = model(x)
            assert ATTENTION_OP not in seen.names
            torch.testing.assert_close(got, want, atol=0.05, rtol=0.05)
    apart = replace(ALL_REWRITES, fuse_attention=False)
    with torch.no_grad(), patched(model, backend="nkisim", rewrites=apart), Seen() as seen:
        model(x)
    assert ATTENTION_OP not in seen.names


def test_gradients_are_torchs():
    model, x = Middle(by_indices).bfloat16(), noise(1, CHANNELS, 2, 3, 3).requires_grad_()
    with patched(model, backend="nkisim"):
        model(x).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("mask", [by_indices, by_rows])
def test_on_the_meta_device_the_frames_are_known_too(mask):
    model = Middle(mask).to("meta", torch.bfloat16)
    x = torch.empty(1, CHANNELS, FRAMES, ROWS, COLUMNS, device="meta", dtype=torch.bfloat16)
    with torch.no_grad(), patched(model) as report, StepLog(report.stats) as log:
        model(x)
    operations = {operation.kind: operation for operation in operations_of(log.steps)}
    tokens, frame = FRAMES * ROWS * COLUMNS, ROWS * COLUMNS
    assert operations["attention"].sizes == (1, tokens, tokens, CHANNELS, 0, frame)
    large = [operation for operation in operations.values() if operation.written_bytes >= tokens**2]
    assert not large  # no mask, nor scores


def test_a_mask_that_is_looked_at_is_made():
    class Looks(Middle):
        def forward(self, x):
            y = super().forward(x)
            self.looked_at = by_rows(2, 6, x.dtype, x.device)
            self.compared = by_indices(2, 6, x.dtype, x.device)
            return y

    model = Looks().bfloat16()
    patch_(model, backend="nkisim")
    with torch.no_grad():
        model(noise(1, CHANNELS, 2, 3, 3))
    want = by_indices(2, 6, torch.bfloat16, "cpu")
    assert torch.equal(model.looked_at, want)
    assert torch.equal(model.compared, want)
