"""What a video may cost before it is set aside: nobody vouches for a corpus."""

from __future__ import annotations

from dataclasses import dataclass

from trnconv.errors import TrnconvError

MESSAGE_BYTES = 1 << 16  # of a request to a decoder: limits and buckets, no pixels


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Of one clip. Another run of the job may have others; each change is noted in its folder."""

    file_bytes: int = 2 << 30
    frame_pixels: int = 1 << 26  # 8192 x 8192
    decode_s: float = 300.0  # wall clock, of one attempt
    memory_bytes: int = 8 << 30  # address space of the process that decodes
    deaths: int = 3  # of a decoder, or of a worker, with the same clip in hand

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise TrnconvError(f"limit {name} of {value}: it is greater than 0.")
