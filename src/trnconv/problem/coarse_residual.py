"""CoarseResidual: a residual of lower resolution than the output that it is added to."""

from __future__ import annotations

from dataclasses import dataclass

from trnconv._nki import NKIObject


@dataclass(frozen=True)
class CoarseResidual(NKIObject):
    """y[c, t, h, w] += r[(c * F + p) // repeats, (t + skipped) // frames, h // rows, w // columns].

    Each element of r stands for a cell of F = frames * rows * columns positions; p is the number of
    a position in its cell, columns counting fastest. That is what torch's `repeat_interleave` over
    channels and a shuffle of channels into positions give. With `repeats` = F it is
    nearest-neighbour upsampling.
    """

    frames: int
    rows: int
    columns: int
    repeats: int
    skipped: int = 0  # frames of the result that are left out at the front

    def cell(self) -> int:
        """Positions of y that an element of r stands for, over all channels it is repeated in."""
        return self.frames * self.rows * self.columns

    def factors(self) -> tuple[int, int, int]:
        """Frames, rows and columns of a cell."""
        return self.frames, self.rows, self.columns

    def channel_step(self) -> int:
        """Channels of r from one channel of y to the next, where a kernel can read it."""
        return self.cell() // self.repeats

    def is_readable(self) -> bool:
        """Whether the columns of a cell come from one channel, and channels lie evenly apart."""
        for frame in range(self.frames):
            for row in range(self.rows):
                apart = self.channel(0, (frame, 0)) + self.channel(0, (0, row))
                if self.channel(0, (frame, row)) != apart:
                    return False
        return self.cell() % self.repeats == 0 and self.repeats % self.columns == 0

    def channel(self, channel: int, position: tuple[int, int]) -> int:
        """The channel of r that is added to a channel of y at a frame and row of a cell."""
        frame, row = position
        number = (frame * self.rows + row) * self.columns
        return (channel * self.cell() + number) // self.repeats

    def sizes(self, y: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of r, of that of y: images, channels, frames, rows, columns."""
        images, channels, frames, rows, columns = y
        return (
            images,
            channels * self.cell() // self.repeats,
            -(-(frames + self.skipped) // self.frames),
            rows // self.rows,
            columns // self.columns,
        )

    def spread(self, r: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of y, of that of r."""
        images, channels, frames, rows, columns = r
        return (
            images,
            channels * self.repeats // self.cell(),
            frames * self.frames - self.skipped,
            rows * self.rows,
            columns * self.columns,
        )

    def text(self) -> str:
        """As ops of torch take it; `coarse_residual_of` is the inverse."""
        return f"{self.frames}/{self.rows}/{self.columns}/{self.repeats}/{self.skipped}"


def coarse_residual_of(text: str) -> CoarseResidual | None:
    """What a text of `CoarseResidual.text` says; None if it is empty."""
    return CoarseResidual(*map(int, text.split("/"))) if text else None
