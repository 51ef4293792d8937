"""What a video spread over several ranks asks of lazy tensors; `trnconv.parallel` has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch

    from trnconv.pytorch.lazy.context import Surroundings
    from trnconv.pytorch.lazy.convolutions import Filters
    from trnconv.pytorch.lazy.operands import Operands, Window3d
    from trnconv.pytorch.lazy.pending import Asked
    from trnconv.pytorch.lazy.video import Video


class Later(Protocol):
    """What is left to do when a convolution of a band alone has run."""

    def completed(self, asked: Asked, y: torch.Tensor) -> torch.Tensor:
        """The result with the outputs that read rows of other ranks."""


class Spread(Protocol):
    """Every tensor is a band, along rows or columns, of what the model is about."""

    @property
    def axis(self) -> int | None:
        """1: bands of rows, 2: of columns, None: tensors are whole at the moment."""

    def whole(self, operands: Operands, window: Window3d) -> Operands:
        """The operands of all ranks together: sizes only."""

    def every(self, operands: Operands, window: Window3d) -> list[Operands]:
        """The operands of each rank, with the rows its outputs read: sizes only."""

    def extended(
        self, operands: Operands, window: Window3d, filters: Filters, around: Surroundings
    ) -> Operands:
        """The operands of this rank, with the rows its outputs read, or with `later`."""

    def require_movable(self, video: Video) -> None:
        """Refuse to do padding of bands, where no convolution asks what is beyond."""

    def require_local(self, filters: Filters) -> None:
        """Refuse a convolution that reads other rows, and whose input is no video."""
