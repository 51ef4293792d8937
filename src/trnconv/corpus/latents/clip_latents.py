"""What came of a clip: the latents of its windows, or why there are none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trnconv.corpus.latents.encoding import Encoder
from trnconv.corpus.videos.decoder import DecodedVideo
from trnconv.corpus.videos.video_reader import BadVideoError, Window

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class ClipLatents:
    """Latents by window and name, and what they were made of; or a reason, and nothing else."""

    id: str  # of the clip
    windows: tuple[tuple[Window, dict[str, torch.Tensor]], ...] = ()
    fps: float = 0.0
    source_bytes: int = 0
    source_sha256: str = ""
    reason: str = ""  # to set it aside

    @property
    def frames(self) -> int:
        """Of all windows."""
        return sum(window.frames for window, _ in self.windows)

    @property
    def pixels(self) -> int:
        """Of all windows."""
        return sum(window.frames * window.picture.pixels for window, _ in self.windows)


def clip_latents(encoder: Encoder, name: str, video: DecodedVideo | BadVideoError) -> ClipLatents:
    """Encode the windows of one clip."""
    if isinstance(video, BadVideoError):
        return ClipLatents(name, reason=str(video))
    windows = tuple((window, encoder.encode(pixels)) for window, pixels in video.windows)
    if not all(bool(latent.isfinite().all()) for _, of in windows for latent in of.values()):
        return ClipLatents(name, reason="its latents are not finite")
    return ClipLatents(name, windows, video.fps, video.source_bytes, video.source_sha256)


def dead_of(deaths: int) -> str:
    """The reason for which a clip is not tried again."""
    return f"{deaths} workers died while they encoded it"
