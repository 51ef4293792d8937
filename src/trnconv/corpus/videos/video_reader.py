"""From a video's bytes to pixels of a bucket's size; what cannot be read is refused with a reason.

FFmpeg is told to open nothing: the bytes are here, playlists and other formats that name further
files are not on the list, and no protocol is.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trnconv.corpus.storage.needs import needed_for
from trnconv.corpus.videos.buckets import Buckets, Picture, Placement, Unfit
from trnconv.corpus.videos.limits import Limits
from trnconv.corpus.videos.orientation import Orientation, orientation_of
from trnconv.corpus.videos.rate import at_rate
from trnconv.corpus.videos.reasons import LARGE
from trnconv.errors import TrnconvError

Pixels = NDArray[np.uint8]
RGB = 3  # bytes of a pixel
_HDR = {16: "PQ", 18: "HLG"}  # transfer curves, as ITU-T H.273 numbers them
_WIDEST = 16  # of a pixel: anamorphic video has up to 2
FORMATS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpeg,mpegvideo,mpegts"  # FFmpeg's names


class BadVideoError(TrnconvError):
    """A video that cannot be encoded, whoever tries: it is set aside."""


@dataclass(frozen=True)
class VideoRequest:
    """What is asked of a video."""

    buckets: Buckets
    fps: float | None = None  # None: every frame
    windows: int = 1  # stretches of the longest bucket's length, one after the other
    limits: Limits = field(default_factory=Limits)

    @property
    def least_bytes(self) -> int:
        """Of the pixels of a clip that fills the smallest bucket."""
        return RGB * min(self.buckets.lengths) * min(size.pixels for size in self.buckets.pictures)

    @property
    def most_bytes(self) -> int:
        """Of the pixels of a clip whose windows all fill the largest bucket."""
        largest = max(size.pixels for size in self.buckets.pictures)
        return RGB * self.windows * self.buckets.longest * largest


@dataclass(frozen=True)
class Window:
    """A stretch of a video as its bucket has it."""

    frames: int
    picture: Picture
    start_s: float  # from the video's first frame


def read_windows(file: Any, request: VideoRequest, take: Any) -> tuple[tuple[Window, ...], float]:
    """Decode an open file; `take` gets every frame of (height, width, RGB); the windows, the rate.

    Frames come in the order of windows, `asked.buckets.longest` of each but the last; a window has
    its first `frames` of them. A BadVideoError is the file's fault and will come again.
    """
    with needed_for("decoding videos"):
        import av

    try:
        with av.open(
            file,
            metadata_errors="replace",
            container_options={"format_whitelist": FORMATS, "protocol_whitelist": ""},
        ) as container:
            return _windows(container, request, take)
    except av.FFmpegError as error:
        raise BadVideoError(f"not decodable: {error.strerror}") from error
    except (ValueError, OverflowError, MemoryError) as error:
        raise BadVideoError(f"not decodable: {error or 'out of memory'}") from error
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise BadVideoError("not decodable: it seeks to nowhere") from error


def _windows(container: Any, request: VideoRequest, take: Any) -> tuple[tuple[Window, ...], float]:
    if not container.streams.video:
        raise BadVideoError("no video stream")
    stream = container.streams.video[0]
    if stream.codec_context is None:
        raise BadVideoError("its codec is not known here")
    _require_small(stream.codec_context, request.limits)
    stream.thread_count = 1  # decoders are processes: threads would only compete
    longest = request.buckets.longest
    starts: list[float] = []
    picture, count = None, 0
    frames = _frames(_sound(container.decode(stream), request.limits), request, stream)
    for number, (time, pixels) in enumerate(islice(frames, longest * request.windows)):
        if number % longest == 0:
            starts.append(time)
        picture, count = Picture(*pixels.shape[:2]), number + 1
        take(pixels)
    fps = request.fps or float(stream.average_rate or 0)
    return _cut_to_buckets(request, count, picture, starts), fps


def _cut_to_buckets(
    request: VideoRequest, count: int, picture: Picture | None, starts: list[float]
) -> tuple[Window, ...]:
    """The windows that fill a bucket; a video without any is bad."""
    made = []
    for number, start in enumerate(starts):
        length = request.buckets.length(
            min(request.buckets.longest, count - number * request.buckets.longest)
        )
        if isinstance(length, Unfit):
            break
        assert picture is not None
        made.append(Window(length, picture, round(start - starts[0], 6)))
    if not made:
        short = request.buckets.length(count)
        assert isinstance(short, Unfit)
        raise BadVideoError(short.reason)
    return tuple(made)


def _frames(
    sound: Iterator[Any], request: VideoRequest, stream: Any
) -> Iterator[tuple[float, Pixels]]:
    """Times and pixels of sound frames, at the rate asked for."""
    if request.fps is None:
        return _placed(((float(frame.time or 0.0), frame) for frame in sound), request, stream)
    timed = ((time, (time, frame)) for frame in sound for time in (_time(frame),))
    return _placed(at_rate(timed, request.fps), request, stream)


def _require_small(picture: Any, limits: Limits) -> None:
    if picture.width * picture.height > limits.frame_pixels:
        raise BadVideoError(
            f"{LARGE}: {picture.height}x{picture.width} pixels: a frame has at most"
            f" {limits.frame_pixels}"
        )


def _sound(frames: Iterator[Any], limits: Limits) -> Iterator[Any]:
    """Frames that are what RGB can show; anything else would be encoded wrong without a word."""
    for number, frame in enumerate(frames):
        if frame.is_corrupt:
            raise BadVideoError(f"frame {number} is damaged")
        if frame.interlaced_frame:
            raise BadVideoError(f"frame {number} is interlaced: deinterlace the video first")
        if (curve := _HDR.get(int(frame.color_trc))) is not None:
            raise BadVideoError(f"frame {number} is HDR ({curve}): map its tones to SDR first")
        _require_small(frame, limits)
        yield frame


def _time(frame: Any) -> float:
    if frame.time is None:
        raise BadVideoError("frames without times: its rate cannot be changed")
    return float(frame.time)


def _placed(
    frames: Iterator[tuple[float, Any]], request: VideoRequest, stream: Any
) -> Iterator[tuple[float, Pixels]]:
    placement: Placement | Unfit | None = None
    seen: tuple[Picture, Orientation] | None = None
    for time, frame in frames:
        way = orientation_of(frame)
        if way is None:
            raise BadVideoError("its display matrix does more than to turn or mirror it")
        picture = way.shown(_square(frame, stream.sample_aspect_ratio))
        if seen is None:
            _require_small(picture, request.limits)
            seen, placement = (picture, way), request.buckets.place(picture)
        if (picture, way) != seen:
            raise BadVideoError(f"its picture changes from {seen[0]} to {picture} pixels")
        if isinstance(placement, Unfit):
            raise BadVideoError(placement.reason)
        assert placement is not None
        yield time, _cut(frame, placement, way)


def _square(frame: Any, aspect: Any) -> Picture:
    """A frame's picture if its pixels were as wide as high; `aspect` is how wide they are."""
    if not aspect or aspect == 1:
        return Picture(frame.height, frame.width)
    if not 1 / _WIDEST <= aspect <= _WIDEST:
        raise BadVideoError(f"pixels {float(aspect):g} times as wide as high")
    return Picture(frame.height, max(1, round(frame.width * aspect)))


def _cut(frame: Any, placement: Placement, way: Orientation) -> Pixels:
    """One frame in RGB, scaled, turned upright and cut to its bucket."""
    size = way.stored(placement.scaled)
    scaled = frame.reformat(size.width, size.height, "rgb24", interpolation="BICUBIC").to_ndarray()
    bottom, right = placement.top + placement.bucket.height, placement.left + placement.bucket.width
    upright = way.upright(scaled)
    return np.ascontiguousarray(upright[placement.top : bottom, placement.left : right])
