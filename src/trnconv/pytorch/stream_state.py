"""StreamState: all that a stream knows of the past of its video, to save and to go on from.

A cache is a list or nested dictionaries of frames, with None and words in between ("Rep": a place
that Wan has seen once). `state_dict` takes it apart into tensors that share no memory, and a record
in JSON of where each belongs, as a tensor of bytes: whatever stores a dictionary of tensors stores
a stream. Frames keep the order of their axes in memory, on which bits of torch's functions depend.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from trnconv.errors import ShapeError, UnsupportedError

Tensor = torch.Tensor
FORMAT = 1
_ABOUT = "about"  # the name of the record among the tensors


@dataclass(frozen=True)
class StreamIdentity:
    """Whose stream it is, and of what: chunks of one video differ in their number of frames only.

    Attributes:
        model: name of the model's class.
        half: encoder or decoder.
        sizes: batch, channels, height and width of chunks.
        dtype: of chunks, as torch prints it.
    """

    model: str
    half: str
    sizes: tuple[int, int, int, int]
    dtype: str

    def __str__(self) -> str:
        return (
            f"(batch, channels, height, width) {self.sizes} in {self.dtype} through the"
            f" {self.half} of {self.model}"
        )


class StreamState:
    """The past of one video in one model; new, it is the state before the first chunk.

    `decode_in_chunks(model, chunks, state=state)` keeps it up to date: after each chunk it may be
    saved, and a stream with it goes on with the next. It belongs to one stream at a time.
    """

    def __init__(self) -> None:
        self.identity: StreamIdentity | None = None
        self.first_frames = 0  # of the first chunk, once there was one
        self.kept: Any = None  # the model's cache
        self.within_a_chunk = False

    def require(self, identity: StreamIdentity) -> None:
        """Refuse a chunk that does not continue this video in this model."""
        if self.within_a_chunk:
            raise UnsupportedError(
                "a state in the middle of a chunk: the chunk before failed, and left part of the"
                " cache at its end and part at its beginning. Load the state that was saved before"
                " that chunk, or start anew."
            )
        if self.identity not in (None, identity):
            raise ShapeError(
                f"a chunk of {identity}, after chunks of {self.identity}: chunks of one video"
                " differ in their number of frames only. Start a stream for each video."
            )

    def state_dict(self) -> dict[str, Tensor]:
        """Everything as tensors of their own memory, on the devices where they are."""
        self._require_a_boundary()
        tensors: dict[str, Tensor] = {}
        about = {
            "format": FORMAT,
            "identity": None if self.identity is None else asdict(self.identity),
            "first_frames": self.first_frames,
            "kept": _taken_apart(self.kept, tensors),
        }
        record = json.dumps(about).encode()
        return {_ABOUT: torch.frombuffer(bytearray(record), dtype=torch.uint8), **tensors}

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Become what `state_dict` gave; the tensors are copied."""
        about = _record_of(tensors)
        identity = about["identity"]
        self.kept = _put_together(about["kept"], tensors)
        self.first_frames = about["first_frames"]
        self.within_a_chunk = False
        self.identity = (
            None
            if identity is None
            else StreamIdentity(**{**identity, "sizes": tuple(identity["sizes"])})
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file; a file of that name is replaced when the new one is whole."""
        from safetensors.torch import save_file  # noqa: PLC0415 (only files need the package)

        partial = Path(f"{os.fspath(path)}.partial")
        save_file(self.state_dict(), partial)
        partial.replace(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str = "cpu") -> StreamState:
        """The state of a file, its frames on a device: that of the chunks to come."""
        from safetensors.torch import load_file  # noqa: PLC0415 (only files need the package)

        state = cls()
        state.load_state_dict(load_file(path, device=device))
        return state

    def _require_a_boundary(self) -> None:
        if self.within_a_chunk:
            raise UnsupportedError(
                "saving a stream in the middle of a chunk: part of its cache is at the chunk's end"
                " and part at its beginning. Save between chunks; a chunk that failed cannot be"
                " taken back."
            )


def _record_of(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """What `state_dict` wrote about its tensors."""
    if _ABOUT not in tensors:
        raise UnsupportedError(
            f"tensors {sorted(tensors)[:3]} as a stream's state: there is no {_ABOUT!r} among them."
            " Give what StreamState.state_dict or .save wrote."
        )
    about: dict[str, Any] = json.loads(bytes(tensors[_ABOUT].cpu().tolist()))
    if about.get("format") != FORMAT:
        raise UnsupportedError(
            f"a stream's state of format {about.get('format')}: this version reads {FORMAT}. Go on"
            " with the version that wrote it."
        )
    return about


def _taken_apart(kept: Any, tensors: dict[str, Tensor]) -> Any:
    """A cache with JSON in place of its tensors, which are added to the dictionary."""
    if kept is None or isinstance(kept, (str, bool, int, float)):
        return kept
    if isinstance(kept, Tensor):
        frames = kept.detach().clone()
        axes = sorted(range(frames.dim()), key=lambda axis: -frames.stride()[axis])
        name = f"frames.{len(tensors)}"
        tensors[name] = frames.permute(axes).contiguous()
        return {"tensor": name, "axes": axes}
    if isinstance(kept, list):
        return [_taken_apart(inner, tensors) for inner in kept]
    if isinstance(kept, dict) and all(isinstance(key, str) for key in kept):
        return {"entries": {key: _taken_apart(inner, tensors) for key, inner in kept.items()}}
    raise UnsupportedError(
        f"saving a cache with a {type(kept).__name__}: lists, dictionaries by words, tensors,"
        " numbers, words and None are saved. Keep the stream in its process."
    )


def _put_together(part: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The cache again."""
    if isinstance(part, list):
        return [_put_together(inner, tensors) for inner in part]
    if not isinstance(part, dict):
        return part
    if "entries" in part:
        return {key: _put_together(inner, tensors) for key, inner in part["entries"].items()}
    axes = part["axes"]
    back = [axes.index(axis) for axis in range(len(axes))]
    return tensors[part["tensor"]].clone().permute(back)


def identity_of(model: object, half: str, chunk: Tensor) -> StreamIdentity:
    """Of a chunk [N, C, T, H, W]."""
    n, c, _, h, w = chunk.shape
    return StreamIdentity(type(model).__name__, half, (n, c, h, w), str(chunk.dtype))
