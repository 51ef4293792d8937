"""Buckets: the few sizes videos are brought to, so that shapes repeat and compile once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trnconv.errors import ShapeError
from trnconv.models import ModelEntry, Size, latent_size

FITS = ("cover", "crop", "exact")
KEPT_ALIKE = 0.1  # of the picture: losing so much more is outweighed by a larger bucket


@dataclass(frozen=True, order=True)
class Picture:
    """Rows and columns of pixels."""

    height: int
    width: int

    def __str__(self) -> str:
        return f"{self.height}x{self.width}"

    @property
    def pixels(self) -> int:
        """Of one frame."""
        return self.height * self.width

    @classmethod
    def parse(cls, text: str) -> Picture:
        """Read height x width: 720x1280."""
        sizes = re.fullmatch(r"(\d+)x(\d+)", text)
        if sizes is None or not int(sizes[1]) * int(sizes[2]):
            raise ShapeError(f"size {text!r}: write height x width in pixels, e.g. 720x1280.")
        return cls(int(sizes[1]), int(sizes[2]))


@dataclass(frozen=True)
class Placement:
    """How a video's picture becomes that of its bucket: scaled to `scaled`, then cut around."""

    bucket: Picture
    scaled: Picture
    top: int
    left: int

    @property
    def kept(self) -> float:
        """The share of the picture that is not cut off."""
        return self.bucket.pixels / self.scaled.pixels


@dataclass(frozen=True)
class Unfit:
    """Why no bucket takes a video."""

    reason: str


@dataclass(frozen=True)
class Buckets:
    """The pictures and lengths there are, and what may be done to a video to fit one.

    `cover` scales a video, keeping its aspect, until it covers the bucket, and cuts off what
    stands out, equally on both sides. `crop` cuts without scaling. `exact` takes only videos of
    just that picture. Of the buckets that keep about as much of the picture as any, the largest
    is taken. A video is cut to the longest length it has the frames for.
    """

    pictures: tuple[Picture, ...]
    lengths: tuple[int, ...]  # frames
    fit: str = "cover"
    enlarge: bool = False

    def __post_init__(self) -> None:
        if self.fit not in FITS:
            raise ShapeError(f"fit {self.fit!r}: one of {', '.join(FITS)}.")
        if not self.pictures or not self.lengths:
            raise ShapeError("buckets without a size or a length: name at least one of each.")

    @property
    def longest(self) -> int:
        """Frames of the longest bucket: no more are ever read."""
        return max(self.lengths)

    def length(self, frames: int) -> int | Unfit:
        """The longest bucket that so many frames fill."""
        filled = [length for length in self.lengths if length <= frames]
        if filled:
            return max(filled)
        return Unfit(f"{frames} frames: the shortest bucket has {min(self.lengths)}")

    def place(self, video: Picture) -> Placement | Unfit:
        """Where a video of this picture goes, and how."""
        possible = [placed for picture in self.pictures if (placed := self._placed(video, picture))]
        if possible:
            most = max(placed.kept for placed in possible)
            near = [placed for placed in possible if placed.kept >= most - KEPT_ALIKE]
            return max(near, key=lambda placed: (placed.bucket.pixels, placed.kept, placed.bucket))
        sizes = ", ".join(map(str, sorted(self.pictures)))
        return Unfit(f"{video} pixels: no bucket of {sizes} takes it with fit={self.fit}")

    def _placed(self, video: Picture, bucket: Picture) -> Placement | None:
        if self.fit == "exact":
            return Placement(bucket, bucket, 0, 0) if video == bucket else None
        large_enough = video.height >= bucket.height and video.width >= bucket.width
        if not large_enough and not (self.fit == "cover" and self.enlarge):
            return None
        scaled = video if self.fit == "crop" else _covering(video, bucket)
        return Placement(
            bucket,
            scaled,
            top=(scaled.height - bucket.height) // 2,
            left=(scaled.width - bucket.width) // 2,
        )


def buckets_for(
    entry: ModelEntry,
    pictures: Sequence[Picture],
    lengths: Sequence[int],
    *,
    fit: str = "cover",
    enlarge: bool = False,
) -> Buckets:
    """Buckets that a model can encode; a ShapeError names the first that it cannot."""
    for picture in pictures:
        for frames in lengths:
            latent_size(entry, Size("bucket", frames, picture.height, picture.width))
    return Buckets(
        tuple(sorted(set(pictures))), tuple(sorted(set(lengths))), fit=fit, enlarge=enlarge
    )


def frames_within(entry: ModelEntry, frames: int) -> int:
    """The most frames the model takes that are not more than these."""
    for fewer in range(frames, 0, -1):
        if entry.frames.allows(fewer):
            return fewer
    raise ShapeError(f"{frames} frames for {entry.name}: it takes {entry.frames} frames.")


def _covering(video: Picture, bucket: Picture) -> Picture:
    """The video scaled until both sides reach the bucket's; rounded up, so none falls short."""
    if video.height * bucket.width <= video.width * bucket.height:
        width = -(-video.width * bucket.height // video.height)
        return Picture(bucket.height, width)
    return Picture(-(-video.height * bucket.width // video.width), bucket.width)
