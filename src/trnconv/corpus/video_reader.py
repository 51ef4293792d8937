"""From a video file to pixels of a bucket's size; what cannot be read is refused with a reason."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trnconv.corpus.buckets import Buckets, Picture, Placement, Unfit
from trnconv.corpus.needs import needed_for
from trnconv.corpus.rate import at_rate
from trnconv.corpus.store import store_of
from trnconv.errors import TrnconvError

Pixels = NDArray[np.uint8]


class BadVideoError(TrnconvError):
    """A video that cannot be encoded, whoever tries: it is set aside."""


@dataclass(frozen=True, eq=False)
class DecodedVideo:
    """Pixels of a bucket's size: (frames, height, width, RGB)."""

    pixels: Pixels

    @property
    def bucket(self) -> str:
        """Height x width x frames."""
        frames, height, width, _ = self.pixels.shape
        return f"{height}x{width}x{frames}"


def read_video(url: str, buckets: Buckets, fps: float | None = None) -> DecodedVideo:
    """Decode as much of a video as its bucket holds; with `fps`, at that rate.

    A BadVideoError is the file's fault and will come again. What the network, the disk or a missing
    right did is another error: the clip is not given up for it.
    """
    with needed_for("decoding videos"):
        import av

    data = _fetched(url)
    try:
        return DecodedVideo(_pixels(data, buckets, fps, av))
    except av.FFmpegError as error:
        raise BadVideoError(f"not decodable: {error.strerror}") from error
    except (ValueError, OverflowError) as error:  # a broken file has seeks to nowhere
        raise BadVideoError(f"not decodable: {error}") from error


def _fetched(url: str) -> bytes:
    """The whole file, so that decoding meets no fault but the file's own; clips are small."""
    fs, path = store_of(url)
    try:
        data: bytes = fs.cat_file(path)
    except FileNotFoundError as error:
        raise BadVideoError("no such file") from error
    except OSError as error:
        raise TrnconvError(
            f"reading {url}: {error}. Set it right and run the same command again; what is done"
            " stays done."
        ) from error
    return data


def _pixels(data: bytes, buckets: Buckets, fps: float | None, av: Any) -> Pixels:
    with av.open(io.BytesIO(data)) as container:
        if not container.streams.video:
            raise BadVideoError("no video stream")
        stream = container.streams.video[0]
        stream.thread_count = 1  # workers are processes: threads would only compete
        frames = _frames(container.decode(stream), fps)
        pixels = _placed(islice(frames, buckets.longest), buckets)
    length = buckets.length(len(pixels))
    if isinstance(length, Unfit):
        raise BadVideoError(length.reason)
    return np.stack(pixels[:length])


def _frames(decoded: Iterator[Any], fps: float | None) -> Iterator[Any]:
    """Sound frames, at the rate asked for."""
    sound = (_sound(frame, number) for number, frame in enumerate(decoded))
    return sound if fps is None else at_rate(((_time(frame), frame) for frame in sound), fps)


def _sound(frame: Any, number: int) -> Any:
    if frame.is_corrupt:
        raise BadVideoError(f"frame {number} is damaged")
    return frame


def _time(frame: Any) -> float:
    if frame.time is None:
        raise BadVideoError("frames without times: its rate cannot be changed")
    return float(frame.time)


def _placed(frames: Iterator[Any], buckets: Buckets) -> list[Pixels]:
    pixels: list[Pixels] = []
    placement: Placement | Unfit | None = None
    seen: Picture | None = None
    for frame in frames:
        picture = Picture(*_upright(frame.height, frame.width, frame.rotation))
        if picture != seen:
            if seen is not None:
                raise BadVideoError(f"its picture changes from {seen} to {picture} pixels")
            seen, placement = picture, buckets.place(picture)
        if isinstance(placement, Unfit):
            raise BadVideoError(placement.reason)
        assert placement is not None
        pixels.append(_cut(frame, placement))
    return pixels


def _upright(height: int, width: int, rotation: int) -> tuple[int, int]:
    return (width, height) if rotation % 180 else (height, width)


def _cut(frame: Any, placement: Placement) -> Pixels:
    """One frame in RGB, scaled, turned upright and cut to its bucket."""
    size = placement.scaled
    height, width = _upright(size.height, size.width, frame.rotation)
    scaled = frame.reformat(width, height, "rgb24", interpolation="BICUBIC").to_ndarray()
    turned = np.rot90(scaled, frame.rotation // 90)
    bottom, right = placement.top + placement.bucket.height, placement.left + placement.bucket.width
    return np.ascontiguousarray(turned[placement.top : bottom, placement.left : right])
