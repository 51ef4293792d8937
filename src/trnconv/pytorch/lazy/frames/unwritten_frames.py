"""UnwrittenFrames: memory that a model allocated, and nobody has written."""

from __future__ import annotations

from dataclasses import dataclass

import torch

Tensor = torch.Tensor


@dataclass(frozen=True, eq=False)
class UnwrittenFrames:
    """[N, C, T, H, W] that nobody has written: made anew for everybody who looks at some."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    zeros: bool

    def lies_in(self) -> frozenset[int]:
        """No storage: there is none yet."""
        return frozenset()

    def is_ours(self) -> bool:
        """Nobody else can change what is not there."""
        return True

    def tensor(self, start: int, stop: int) -> Tensor:
        """Some of the frames."""
        n, c, _, h, w = self.shape
        sizes = (n, c, stop - start, h, w)
        make = torch.zeros if self.zeros else torch.empty
        return make(sizes, dtype=self.dtype, device=self.device)
