"""Streaming: a video of any length through an autoencoder, chunk by chunk, in constant memory.

A causal model needs the last frames before a chunk and nothing else of the past. It keeps them in
a cache: a list of slots, one a causal convolution (`feat_cache`: Wan, Qwen-Image), or nested
dictionaries (`conv_cache`: CogVideoX). Models are known by that, not by name. The cache belongs to
the stream's state (`stream_state.py`), so that several streams of one model may take turns, and a
stream may be saved.

Slots: chunks of any length give the frames of the model's own loop, which feeds one latent frame at
a time. Temporal resamplers treat the first call differently, whatever its length; so of a first
chunk, the first frame goes through the model alone, and the others after it.

Dictionaries: CogVideoX normalises over all frames of a chunk, so that other chunks make other
frames. Its own plan of chunks is the only one taken.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from math import prod
from typing import Any, Protocol

import torch
from torch import nn

from trnconv.errors import ShapeError, UnsupportedError
from trnconv.pytorch.stream_state import StreamState, identity_of

Tensor = torch.Tensor
Step = Callable[[Tensor], Tensor]


def decode_in_chunks(
    model: nn.Module, latent_chunks: Iterable[Tensor], *, state: StreamState | None = None
) -> Iterator[Tensor]:
    """The frames of each chunk of latents [N, C, T, H, W], as soon as they are decoded.

    The first latent frame of a video gives one frame, every other as many as the model compresses
    into one. The model may be patched or not; there are no gradients. With a `state`, the chunks
    continue its video, and it knows them afterwards.
    """
    cache = _cache_of(model, "decoder", StreamState() if state is None else state)
    clamps = isinstance(cache, _FeatureCache)

    def step(latents: Tensor) -> Tensor:
        frames = _from_patches(cache.run(_through(model, "post_quant_conv", latents)), model)
        return frames.clamp(-1.0, 1.0) if clamps else frames

    return _stream(model, latent_chunks, cache, step)


def encode_in_chunks(
    model: nn.Module,
    video_chunks: Iterable[Tensor],
    *,
    moments: bool = False,
    state: StreamState | None = None,
) -> Iterator[Tensor]:
    """The latents of each chunk of pixels [N, C, T, H, W], as soon as they are encoded.

    Latents are the means of their distributions; with `moments`, means and log-variances one after
    the other along the channels. The model may be patched or not; there are no gradients. With a
    `state`, the chunks continue its video, and it knows them afterwards.
    """
    cache = _cache_of(model, "encoder", StreamState() if state is None else state)

    def step(pixels: Tensor) -> Tensor:
        both = _through(model, "quant_conv", cache.run(_to_patches(pixels, model)))
        return both if moments else both.chunk(2, dim=1)[0]

    return _stream(model, video_chunks, cache, step)


def _stream(
    model: nn.Module, chunks: Iterable[Tensor], cache: _CachedHalf, step: Step
) -> Iterator[Tensor]:
    """Each chunk, checked and stepped through."""
    state = cache.state
    for chunk in chunks:
        _require_frames(chunk)
        identity = identity_of(model, cache.half_name, chunk)
        state.require(identity)
        _require_one_at_a_time(model, chunk)
        cache.require(chunk.shape[2])
        state.within_a_chunk = True
        with torch.no_grad():
            # A copy: the cache may keep these frames, and the caller may use their memory again.
            result = step(chunk.detach().clone())
        state.first_frames = state.first_frames or chunk.shape[2]
        state.identity, state.within_a_chunk = identity, False
        yield result


class _CachedHalf(Protocol):
    """Half of a model on top of the frames that it keeps from chunk to chunk."""

    state: StreamState
    half_name: str

    def require(self, frames: int) -> None:
        """Refuse a next chunk of so many frames in words, if it cannot be."""

    def run(self, x: Tensor) -> Tensor:
        """The next chunk through the encoder or decoder."""


class _FeatureCache:
    """`feat_cache`: the last frames before each causal convolution, in the order of their calls."""

    def __init__(self, half: nn.Module, half_name: str, state: StreamState) -> None:
        self.state = state
        self.half_name = half_name
        self._half = half
        # Frames that become one.
        self._multiple = _frames_in_one(half) if half_name == "encoder" else 1
        slots = sum(isinstance(module, nn.Conv3d) for module in half.modules())
        state.kept = [None] * slots if state.kept is None else state.kept
        if not isinstance(state.kept, list) or len(state.kept) != slots:
            raise _of_another_model(half, f"a list of {slots} slots")

    def require(self, frames: int) -> None:
        """1 + n k frames, then n k."""
        begun = self.state.first_frames > 0
        alone = 0 if begun else 1
        if (frames - alone) % self._multiple:
            raise ShapeError(
                f"a {'later' if begun else 'first'} chunk of {frames} frames: the model makes"
                f" one latent of the first frame, and of every {self._multiple} frames after it. So"
                f" the first chunk has 1 + {self._multiple} k frames (k = 0, 1, 2, ...), and others"
                f" have {self._multiple} k (k = 1, 2, ...)."
            )

    def run(self, x: Tensor) -> Tensor:
        """The first frame of a video alone, then all there are."""
        if self.state.first_frames:
            return self._call(x, first=False)
        first = self._call(x[:, :, :1], first=True)
        if x.shape[2] == 1:
            return first
        return torch.cat([first, self._call(x[:, :, 1:], first=False)], dim=2)

    def _call(self, x: Tensor, *, first: bool) -> Tensor:
        options: dict[str, Any] = {"feat_cache": self.state.kept, "feat_idx": [0]}
        if "first_chunk" in _parameters(self._half):
            options["first_chunk"] = first
        y: Tensor = self._half(x, **options)
        return y


class _Dictionaries:
    """`conv_cache`: nested dictionaries that every module returns."""

    def __init__(self, half: nn.Module, half_name: str, state: StreamState, step: int) -> None:
        self.state = state
        self.half_name = half_name
        self._half = half
        self._step = step
        if not isinstance(state.kept, dict | None):
            raise _of_another_model(half, "nested dictionaries")

    def require(self, frames: int) -> None:
        """The model's plan: what is left over with the first step, then steps."""
        step, first = self._step, self.state.first_frames
        fits = frames == step <= first if first else 1 <= frames < 2 * step
        if not fits:
            raise ShapeError(
                f"a {'later' if first else 'first'} chunk of {frames} frames: this model"
                " normalises over the frames of a chunk, so that only its own chunks make its own"
                f" frames. It takes {step} at a time, with what is left over in the first chunk:"
                f" {step} to {2 * step - 1} frames, then {step} each; or one chunk of fewer."
            )

    def run(self, x: Tensor) -> Tensor:
        """The model's own forward."""
        y: Tensor
        y, self.state.kept = self._half(x, conv_cache=self.state.kept)
        return y


def _cache_of(model: nn.Module, name: str, state: StreamState) -> _CachedHalf:
    """The cache of the encoder or decoder of a model; refused if it has none."""
    half: Any = getattr(model, name, None)
    given = _parameters(half) if isinstance(half, nn.Module) else frozenset()
    if {"feat_cache", "feat_idx"} <= given and _looks_back(half):
        _require_whole_frames(model)
        return _FeatureCache(half, name, state)
    if "conv_cache" in given and (step := _own_step(model, name)):
        _require_whole_frames(model)
        return _Dictionaries(half, name, state, step)
    raise UnsupportedError(
        f"streaming {type(model).__name__}: its {name} keeps no frames from chunk to chunk (neither"
        " feat_cache slots before causal convolutions, nor a conv_cache with steps of its own)."
        " Call the model's own encode or decode on a whole clip."
    )


def _of_another_model(half: nn.Module, wanted: str) -> ShapeError:
    return ShapeError(
        f"a state for {type(half).__name__}: it is that of another model, this one keeps {wanted}."
        " Go on with the model that it was saved from."
    )


def _parameters(half: nn.Module) -> frozenset[str]:
    """Of the class's forward: a patched instance's own takes anything."""
    return frozenset(inspect.signature(type(half).forward).parameters)


def _looks_back(half: nn.Module) -> bool:
    """Whether it reads earlier frames at all: a model of images may have slots, and leave them."""
    return any(
        isinstance(module, nn.Conv3d) and module.kernel_size[0] > 1 for module in half.modules()
    )


def _frames_in_one(half: nn.Module) -> int:
    """The product of its temporal resamplers, which have a mode and a convolution over time."""
    each: list[Any] = [module for module in half.modules() if hasattr(module, "mode")]
    return prod(
        resampler.time_conv.stride[0] for resampler in each if hasattr(resampler, "time_conv")
    )


def _own_step(model: nn.Module, name: str) -> int:
    """Frames that the model takes at a time; 0 if it takes whole clips.

    A class with a switch for it, as Mochi's, takes whole clips while it is off, and does not run
    while it is on.
    """
    which = {"decoder": "num_latent_frames_batch_size", "encoder": "num_sample_frames_batch_size"}
    switched = hasattr(model, "use_framewise_decoding")
    return 0 if switched else getattr(model, which[name], 0)


def _require_frames(chunk: Tensor) -> None:
    if chunk.ndim != 5 or chunk.shape[2] == 0:
        raise ShapeError(
            f"a chunk of shape {tuple(chunk.shape)}: chunks are (batch, channels, frames, height,"
            " width), with at least one frame."
        )


def _require_whole_frames(model: nn.Module) -> None:
    if getattr(model, "use_tiling", False):
        raise UnsupportedError(
            f"streaming {type(model).__name__} with use_tiling: a stream keeps one cache, of whole"
            " frames. Call the model's disable_tiling() first."
        )


def _require_one_at_a_time(model: nn.Module, chunk: Tensor) -> None:
    if getattr(model, "use_slicing", False) and len(chunk) > 1:
        raise UnsupportedError(
            f"streaming a batch of {len(chunk)} through {type(model).__name__} with use_slicing: a"
            " stream takes its batch at once. Start a stream for each video, or call the model's"
            " disable_slicing()."
        )


def _through(model: nn.Module, name: str, x: Tensor) -> Tensor:
    """A pointwise convolution, where the model has it."""
    module = getattr(model, name, None)
    return x if module is None else module(x)


def _patch_size(model: nn.Module) -> int:
    """Rows and columns of pixels that are channels of one position."""
    return getattr(getattr(model, "config", None), "patch_size", None) or 1


def _to_patches(pixels: Tensor, model: nn.Module) -> Tensor:
    """Pixels of a patch become channels, column by column."""
    size = _patch_size(model)
    if size == 1:
        return pixels
    n, c, t, h, w = pixels.shape
    if h % size or w % size:
        raise ShapeError(
            f"frames of {h} x {w} pixels: the model takes patches of {size} x {size}. Crop or pad"
            " the frames to multiples."
        )
    cut = pixels.reshape(n, c, t, h // size, size, w // size, size)
    return cut.permute(0, 1, 6, 4, 2, 3, 5).flatten(1, 3)


def _from_patches(frames: Tensor, model: nn.Module) -> Tensor:
    """Channels become the pixels of a patch, column by column."""
    size = _patch_size(model)
    if size == 1:
        return frames
    n, _, t, h, w = frames.shape
    cut = frames.reshape(n, -1, size, size, t, h, w)
    return cut.permute(0, 1, 4, 5, 3, 6, 2).flatten(5, 6).flatten(3, 4)
