"""StoredFrames: frames as they lie in memory. Equal ones are the same elements."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field

import torch

from trnconv.pytorch.lazy.base import pending_reads
from trnconv.pytorch.lazy.base.memory import (
    UNKNOWN,
    Counted,
    holders,
    require_present,
    storage_of,
    written,
)
from trnconv.pytorch.lazy.base.pending_reads import unseen

Tensor = torch.Tensor
Five = tuple[int, int, int, int, int]
State = tuple[int, int | None]  # changes that were seen, and those that torch counts
_FRAMES = 2
# The one tensor by which records hold a memory, so that other holders can be counted.
_aliases: weakref.WeakValueDictionary[tuple[int, torch.dtype], Tensor] = (
    weakref.WeakValueDictionary()
)


@dataclass(frozen=True)
class StoredFrames:
    """[N, C, T, H, W] in memory: all frames that the strides of a view reach, each by its number.

    A view of some frames and a view of all have the same StoredFrames; which frames a view shows
    is said beside it.
    """

    storage: int
    origin: int  # the element where frame 0 begins
    strides: Five  # 0 along axes of one position
    sizes: Five
    dtype: torch.dtype
    device: torch.device
    alias: Tensor = field(compare=False, repr=False)  # `parameter.data = other` does not move it
    counted: Counted = field(compare=False, repr=False)

    @property
    def shape(self) -> torch.Size:
        """As a tensor's."""
        return torch.Size(self.sizes)

    def lies_in(self) -> frozenset[int]:
        """Storages that a reader depends on."""
        return frozenset([self.storage])

    def tensor(self, start: int, stop: int) -> Tensor:
        """Some of the frames, where they lie."""
        self.counted.require_unchanged()
        require_present(self.alias)
        n, c, _, h, w = self.sizes
        offset = self.origin + start * self.strides[_FRAMES]
        sizes = (n, c, stop - start, h, w)
        with unseen():
            return self.alias.as_strided(sizes, _full_strides(self.strides, sizes), offset)

    def is_ours(self, besides: int = 0) -> bool:
        """Whether records alone hold the memory, but for so many tensors that are known.

        Memory that came from outside of torch may have holders that torch does not know of.
        """
        own = torch.Tensor.untyped_storage(self.alias)
        return own.resizable() and holders(self.alias) <= 1 + besides

    def state(self) -> State:
        """What tells whether it is changed later; compare it by `is_unchanged`."""
        counted = self.counted.tensor()
        return pending_reads.changes_of(self.storage), None if counted is None else written(counted)

    def is_unchanged(self, since: State) -> bool:
        """Whether it is as it was then. What only records hold is changed by nobody else."""
        changes, version = self.state()
        if changes != since[0]:
            return False
        return version is None or version == since[1] != UNKNOWN


def _full_strides(strides: Five, sizes: Five) -> list[int]:
    """Strides as a dense tensor would have them along axes of one position."""
    full, inner = [0] * 5, 1
    for axis in reversed(range(5)):
        full[axis] = strides[axis] if sizes[axis] > 1 else inner
        inner = max(inner, full[axis] * sizes[axis])
    return full


def stored_frames(video: Tensor, counted: Tensor) -> tuple[StoredFrames, int]:
    """The frames of a tensor [N, C, T, H, W], and the number of its first; T of them are shown.

    `counted` is the tensor whose changes torch counts: `video` may be an alias of it.
    """
    n, c, t, h, w = video.shape
    steps = [
        step if size > 1 else 0 for step, size in zip(video.stride(), video.shape, strict=True)
    ]
    offset, step = int(video.storage_offset()), video.stride(_FRAMES)
    first, frames = 0, t
    outer_steps = [outer for outer in steps[:2] if outer >= step]
    outer = min(outer_steps) if outer_steps else _elements(video)
    if 0 < step <= outer >= step * t and not any(outer % stride for stride in outer_steps):
        first, frames = offset % outer // step, outer // step
    if first + t > frames:
        first, frames = 0, t
    if frames > 1:
        steps[_FRAMES] = step
    lying = StoredFrames(
        storage=storage_of(video),
        origin=offset - first * step,
        strides=(steps[0], steps[1], steps[2], steps[3], steps[4]),
        sizes=(n, c, frames, h, w),
        dtype=video.dtype,
        device=video.device,
        alias=_alias(video),
        counted=Counted.of(counted),
    )
    return lying, first


def _alias(tensor: Tensor) -> Tensor:
    key = (storage_of(tensor), tensor.dtype)
    known = _aliases.get(key)
    if known is None:
        with unseen():
            known = tensor.detach()
        _aliases[key] = known
    return known


def _elements(tensor: Tensor) -> int:
    """Of its whole memory."""
    return torch.Tensor.untyped_storage(tensor).nbytes() // tensor.element_size()
