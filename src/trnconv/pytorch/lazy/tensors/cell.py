"""LazyCell: memory that torch would have given a tensor, recorded as a video or made; views of it.

`meta`, a tensor on the meta device, says how the memory would be laid out: views act on it, so
which elements a view shows is torch's own answer, whatever the names of the functions that made it.
"""

from __future__ import annotations

from typing import Any

import torch

from trnconv.pytorch.lazy.base import pending_reads
from trnconv.pytorch.lazy.base.bypass import passing
from trnconv.pytorch.lazy.base.deferred_result import Pending
from trnconv.pytorch.lazy.base.memory import holders, storage_of
from trnconv.pytorch.lazy.base.pending_reads import unseen
from trnconv.pytorch.lazy.frames.materialize import done
from trnconv.pytorch.lazy.frames.places import place_of, shown
from trnconv.pytorch.lazy.frames.stored_frames import StoredFrames
from trnconv.pytorch.lazy.frames.video import LazyVideo
from trnconv.pytorch.lazy.tensors.context import PatchContext

Tensor = torch.Tensor


class LazyCell:
    """A record of how memory is made (`video`), or the tensor once it was made (`real`)."""

    def __init__(
        self, meta: Tensor, video: LazyVideo | None, context: PatchContext, *, owns: bool = False
    ) -> None:
        self.meta = meta
        self.context = context
        self.video = video
        self.real: Tensor | None = None
        self.is_viewed = False
        self.for_a_layer = False  # a layer of torch's wants it in order: no movement of the model's
        self.is_a_result = owns  # of a convolution: its own memory; movement would be a copy
        if video is not None:
            pending_reads.add(self)

    def reads(self) -> frozenset[int]:
        """Storages that must not change before this is made."""
        if self.video is None:
            return frozenset()
        return frozenset().union(*(run.base.lies_in() for run in self.video.runs))

    def settle(self) -> None:
        """Read them now."""
        self.made()

    def made(self) -> Tensor:
        """The tensor in memory of its own, laid out as the meta tensor; made the first time."""
        if self.real is None:
            assert self.video is not None
            video = self.video
            with passing():
                require_movable(video, self.context)
                made = done(video, self.context.stats)
                if not self.is_a_result and _is_shared(made, video):
                    made = self._owned(made, video)
                self._keep(made)
        assert self.real is not None
        return self.real

    def made_of(self, video: LazyVideo) -> None:
        """From now on: the same elements in parts, or with others where none were written."""
        self.video = video

    def lies_as(self, meta: Tensor) -> None:
        """From now on, in memory that is laid out so. Nobody has a view of it yet."""
        self.meta = meta

    def frames_in(self, meta: Tensor) -> tuple[int, int] | None:
        """First and last of the frames that a view of it shows; None if it shows none."""
        place = None if self.video is None else place_of(self.video, self.meta, meta)
        return None if place is None or place.times > 1 else (place.start, place.stop)

    def is_of(self, base: Any) -> bool:
        """Whether its making takes this."""
        return self.video is not None and any(run.base is base for run in self.video.runs)

    def keep_if_whole(self, value: Tensor, meta: Tensor) -> None:
        """Take a value that was made for a view as the memory, if it is all of it as it lies."""
        alike = value.stride() == meta.stride() and value.storage_offset() == 0
        if alike and meta.numel() == self.meta.numel() and value.is_contiguous():
            with unseen():
                self._take(value.as_strided(self.meta.shape, self.meta.stride(), 0))

    def may_wait(self) -> bool:
        """Whether nobody else can change what this has to read: it gives the same values later."""
        return self.video is not None and all(_is_ours(run.base) for run in self.video.runs)

    def _owned(self, made: Tensor, video: LazyVideo) -> Tensor:
        """A copy, but where the memory is of no use to anybody else."""
        base = video.runs[0].base
        if isinstance(base, StoredFrames) and video.untouched and base.is_ours(besides=1):
            return made
        if isinstance(base, Pending) and video.untouched and self._alone_has(base):
            return made
        self.context.stats.moved("cache", 2 * made.nbytes)
        return made.clone(memory_format=torch.contiguous_format)

    def _alone_has(self, base: Pending) -> bool:
        """Whether nothing else reads the result of that, or holds it."""
        others = [reader for reader in pending_reads.readers(base.lies_in()) if reader is not self]
        result = base.result()
        own = 2 if result._is_view() else 1  # noqa: SLF001 (torch's name); a view holds its base
        return not others and holders(result) <= own + 1  # and what was just made of it

    def _keep(self, made: Tensor) -> None:
        as_promised = laid_out_as(made, self.meta)
        self._take(made if as_promised else self.restrided(made, self.meta))

    def restrided(self, tensor: Tensor, meta: Tensor) -> Tensor:
        """A copy that is laid out as the meta tensor."""
        if not self.for_a_layer:
            self.context.stats.moved("permute", 2 * tensor.nbytes)
        fresh = torch.empty_strided(
            meta.shape, meta.stride(), dtype=tensor.dtype, device=tensor.device
        )
        return fresh.copy_(tensor)

    def _take(self, made: Tensor) -> None:
        self.real, self.video = made, None
        pending_reads.remove(self)


def require_movable(video: LazyVideo, context: PatchContext) -> None:
    """Refuse to do what only a convolution can, of a video on several ranks."""
    if context.spread is not None:
        context.spread.require_movable(video)


def laid_out_as(tensor: Tensor, meta: Tensor) -> bool:
    """Whether the elements lie as the meta tensor says."""
    pairs = zip(tensor.stride(), meta.stride(), tensor.shape, strict=True)
    return all(own == theirs or size == 1 for own, theirs, size in pairs)


def _is_ours(base: Any) -> bool:
    if not isinstance(base, Pending):
        return bool(base.is_ours())
    return base.has_run and holders(base.result()) <= 1  # its operands are the model's weights too


def _is_shared(made: Tensor, video: LazyVideo) -> bool:
    return any(storage_of(made) in run.base.lies_in() for run in video.runs)


class ViewOf:
    """What a lazy tensor shows of a cell."""

    def __init__(self, cell: LazyCell, meta: Tensor) -> None:
        self.cell = cell
        self.meta = meta
        self._video: LazyVideo | None = None
        self._value: Tensor | None = None  # of some of the cell, to look at
        self._looked_at: LazyVideo | None = None

    @staticmethod
    def of_tensor(tensor: Tensor, context: PatchContext) -> ViewOf:
        """All of a tensor that is made already."""
        with unseen():
            meta = torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta"
            )
            cell = LazyCell(meta, None, context)
            cell.real = tensor.detach()
        return ViewOf(cell, meta)

    def video(self) -> LazyVideo | None:
        """The frames it shows; None if it shows no frames, or is not a record any more."""
        if self.cell.video is None:
            return LazyVideo.of(self.solid())
        if self._looked_at is not self.cell.video:
            self._looked_at, self._value = self.cell.video, None
            self._video = shown(self.cell.video, self.cell.meta, self.meta)
        return self._video

    def solid(self) -> Tensor:
        """The tensor, in memory that is made for good: who writes here writes in all its views."""
        return self._seen_of(self.cell.made())

    def value(self) -> Tensor:
        """The tensor, to look at: it may be somebody else's memory."""
        return self.put_in_order(self.elements())

    def put_in_order(self, made: Tensor) -> Tensor:
        """Its elements with its strides."""
        if laid_out_as(made, self.meta):
            return made
        with passing():
            made = self.cell.restrided(made, self.meta)
        return self._kept(made)

    def elements(self) -> Tensor:
        """The same, but for the strides, which are those of wherever the elements lie."""
        cell = self.cell
        if cell.real is not None:
            return self._seen_of(cell.real)
        video = self.video()
        if self._value is not None:
            return self._value
        if video is None:
            whole = ViewOf(cell, cell.meta).value()
            return self._seen_of(whole)
        with passing():
            require_movable(video, cell.context)
            made = done(video, cell.context.stats)
        return made if _is_shared(made, video) else self._kept(made)

    def _kept(self, made: Tensor) -> Tensor:
        self.cell.keep_if_whole(made, self.meta)
        if self.cell.real is None:
            self._value = made
        return made

    def of(self, meta: Tensor) -> ViewOf:
        """A view of the view."""
        self.cell.is_viewed = True
        return ViewOf(self.cell, meta)

    def _seen_of(self, memory: Tensor) -> Tensor:
        meta, whole = self.meta, self.cell.meta
        if meta is whole:
            return memory
        offset = memory.storage_offset() + meta.storage_offset() - whole.storage_offset()
        with unseen():
            seen = memory.view(meta.dtype) if meta.dtype != memory.dtype else memory
            return seen.as_strided(meta.shape, meta.stride(), offset)


def as_memory(video: LazyVideo) -> Tensor:
    """A meta tensor of dense memory that shows the video."""
    with unseen():
        return torch.empty(video.shape, dtype=video.dtype, device="meta")
