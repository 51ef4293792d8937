"""How a picture is turned before it is shown: the matrix that phones write beside their videos."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trnconv.corpus.videos.buckets import Picture

_MATRIX = struct.Struct("=9i")  # a b u, c d v, x y w: x' = a x + c y, y' = b x + d y


@dataclass(frozen=True)
class Orientation:
    """One of the eight ways to lay a picture: rows and columns changed, then turned over."""

    transposed: bool = False
    rows_reversed: bool = False
    columns_reversed: bool = False

    def shown(self, picture: Picture) -> Picture:
        """The picture as it is seen."""
        return Picture(picture.width, picture.height) if self.transposed else picture

    stored = shown  # and back

    def upright(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """(rows, columns, RGB) as they are seen."""
        turned = pixels.swapaxes(0, 1) if self.transposed else pixels
        turned = turned[::-1] if self.rows_reversed else turned
        return turned[:, ::-1] if self.columns_reversed else turned


def orientation_of(frame: Any) -> Orientation | None:
    """How a decoded frame is shown; None if its matrix does anything else to it."""
    from av.sidedata.sidedata import Type

    data = frame.side_data.get(Type.DISPLAYMATRIX)
    if data is None:
        return Orientation()
    a, b, _, c, d = _MATRIX.unpack(bytes(data))[:5]
    if a and d and not (b or c):
        return Orientation(rows_reversed=d < 0, columns_reversed=a < 0)
    if b and c and not (a or d):
        return Orientation(transposed=True, rows_reversed=b < 0, columns_reversed=c < 0)
    return None
