"""Masks of attentions that have not been made, and what is known of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from enum import Enum
from math import inf

import numpy as np
import torch

from trnconv.pytorch.lazy.base.deferred_result import Pending
from trnconv.pytorch.lazy.base.memory import Counted

Tensor = torch.Tensor
Like = tuple[torch.Size, torch.dtype, torch.device]  # [1, 1, 1, queries, keys]


class MaskKind(Enum):
    """What the elements say."""

    seen = "True where a key is seen"
    added = "0 where a key is seen, else minus infinity"


class PendingMask(Pending):
    """[1, 1, 1, queries, keys]."""

    kind = MaskKind.added

    @property
    @abstractmethod
    def frame_tokens(self) -> int | None:
        """Tokens of a frame, if each sees its frame and those before it; None if it does not."""


class ComparedMask(PendingMask):
    """Causal by frame, by two vectors of indices."""

    def __init__(
        self,
        kind: MaskKind,
        frame_tokens: int,
        like: Like,
        by_torch: Callable[[], Tensor],
        counted: tuple[Counted, ...],
    ) -> None:
        self.kind = kind
        self.counted = counted
        self._frame_tokens = frame_tokens
        self._by_torch: Callable[[], Tensor] | None = by_torch
        super().__init__(*like)

    @property
    def frame_tokens(self) -> int:
        """As it was found."""
        return self._frame_tokens

    def operand_storages(self) -> frozenset[int]:
        """Of the indices that are compared."""
        return frozenset(counted.storage for counted in self.counted)

    def run(self) -> Tensor:
        """By the model's own operators."""
        assert self._by_torch is not None
        for counted in self.counted:
            counted.require_unchanged()
        made = self._by_torch().reshape(self.shape)
        self._by_torch = None
        return made


class FilledMask(PendingMask):
    """Minus infinity, until a model writes zeros at the head of a row, and of the next."""

    def __init__(self, like: Like) -> None:
        super().__init__(*like)
        self._heads = np.zeros(self.shape[-2], np.int64)  # zeros of each row

    def operand_storages(self) -> frozenset[int]:
        """It reads none; by this number others say that they read it."""
        return frozenset([id(self)])

    def fill_head(self, row: int, keys: int) -> None:
        """Zeros for so many keys of a row."""
        self._heads[row] = max(self._heads[row], keys)

    @property
    def frame_tokens(self) -> int | None:
        """By what was written so far."""
        return causal_frame(self._heads, self.shape[-1])

    def run(self) -> Tensor:
        """At once, instead of row by row."""
        keys = torch.arange(self.shape[-1], device=self.device)
        heads = torch.from_numpy(self._heads).to(self.device)
        zero = torch.zeros((), dtype=self.dtype, device=self.device)
        made = torch.where(keys < heads[:, None], zero, -inf)
        return made.to(self.dtype).reshape(self.shape)


def causal_frame(seen: np.ndarray, tokens: int) -> int | None:
    """Tokens of a frame, if query i sees its first seen[i] keys: its frame, and those before it."""
    frame = int(seen[0])
    if len(seen) != tokens or not frame or tokens % frame:
        return None
    causal = (np.arange(tokens) // frame + 1) * frame
    return frame if bool((seen == causal).all()) else None
