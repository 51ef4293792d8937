"""Decoding for people who wait: latency of a video, videos of an instance, and what one costs."""

from __future__ import annotations

from dataclasses import dataclass

from trnconv.corpus.fleet.capacity import Assumptions, ModelledClip, require_memory
from trnconv.corpus.fleet.instances import Instance

_HOUR_S = 3600


@dataclass(frozen=True, kw_only=True)
class Serving:
    """One instance that decodes as many videos at a time as it has cores for, modelled."""

    at_once: int
    latency_s: float  # of a video, from its latents to pixels on the device
    videos_per_hour: float
    dollars_per_video: float | None  # at the price given, with all cores at work


def serving(
    clip: ModelledClip,
    instance: Instance,
    assumed: Assumptions,
    dollars_per_hour: float | None = None,
) -> Serving:
    """What one instance does; a TrnconvError if so many videos do not fit its memory."""
    require_memory(clip, instance, assumed)
    at_once = instance.cores // assumed.cores_per_clip
    latency = clip.core_s / assumed.cores_per_clip / assumed.reached
    per_hour = at_once * _HOUR_S / latency
    cost = None if dollars_per_hour is None else dollars_per_hour / (1 - assumed.spare) / per_hour
    return Serving(
        at_once=at_once, latency_s=latency, videos_per_hour=per_hour, dollars_per_video=cost
    )
