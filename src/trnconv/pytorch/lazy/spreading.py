"""What a video spread over several ranks asks of lazy tensors; `trnconv.parallel` has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from trnconv.pytorch.lazy.convolutions import Filters
    from trnconv.pytorch.lazy.operands import Operands, Window3d
    from trnconv.pytorch.lazy.video import Video


class Spread(Protocol):
    """Every tensor is a band, along rows or columns, of what the model is about."""

    @property
    def axis(self) -> int | None:
        """1: bands of rows, 2: of columns, None: tensors are whole at the moment."""

    def whole(self, operands: Operands, window: Window3d) -> Operands:
        """The operands of all ranks together: sizes only."""

    def every(self, operands: Operands, window: Window3d) -> list[Operands]:
        """The operands of each rank, with the rows its outputs read: sizes only."""

    def extended(self, operands: Operands, window: Window3d) -> Operands:
        """The operands of this rank, with the rows its outputs read."""

    def require_movable(self, video: Video) -> None:
        """Refuse to do padding of bands, where no convolution asks what is beyond."""

    def require_local(self, filters: Filters) -> None:
        """Refuse a convolution that reads other rows, and whose input is no video."""
