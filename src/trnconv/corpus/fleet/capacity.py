"""How many instances a corpus takes in a time, and what breaks first. Arithmetic on modelled times.

Each resource has a demand and what one instance supplies. The most instances any of them asks for
are needed; the one that is used most then is the first to break when the demand grows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from trnconv.corpus.fleet.instances import Instance
from trnconv.errors import TrnconvError
from trnconv.models import LatentSize, Size

_DAY_S = 86_400
_GIB = 2**30
_RGB = 3


def _require_amount(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise TrnconvError(f"{name} of {value}: it is greater than 0, and finite.")


@dataclass(frozen=True, kw_only=True)
class Assumptions:
    """What no model of ours answers. Every one can be set; the answer lists them."""

    reached: float = 0.5  # of the modelled speed: norms, attention, launches, waits are not in it
    usable: float = 0.8  # of vCPUs and network: the rest is Ray, the runtime, uneven load
    source_fps: float = 30.0  # frames a second in the files; all of them are decoded
    source_area: float = 1.0  # pixels of a file's picture for each one of the clip's
    source_mbit_s: float = 5.0  # bit rate of the files; H.264 at 720p
    decode_mpixel_s: float = 60.0  # of one vCPU: decoding, scaling and conversion to RGB
    object_store_gbit_s: float = 50.0  # of one instance, to and from the object store
    cores_per_clip: int = 1  # that a clip is cut over; halos and uneven bands are not counted
    clips_in_flight: float = 3.0  # decoded clips in host memory for each one being encoded
    process_gb: float = 6.0  # of a worker: interpreter, torch, runtime, and the model on its way
    ray_store_gb: float = 0.0  # of an instance: Ray's object store, where clips wait
    spare: float = 0.0  # of the instances, idle until others fail
    latents: int = 2  # tensors kept of a clip: mean and log variance
    latent_bytes: int = 2  # of a value: bf16

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name not in ("spare", "ray_store_gb"):
                _require_amount(name, value)
        if not 0 <= self.ray_store_gb < math.inf:
            raise TrnconvError(f"ray_store_gb of {self.ray_store_gb}: at least 0, and finite.")
        if not 0 <= self.spare < 1:
            raise TrnconvError(f"spare of {self.spare}: a share of the instances, below 1.")
        for name in ("reached", "usable"):
            if getattr(self, name) > 1:
                raise TrnconvError(f"{name} of {getattr(self, name)}: a share, at most 1.")


@dataclass(frozen=True, kw_only=True)
class ModelledClip:
    """What encoding one clip takes on the cores of one launch, modelled."""

    size: Size
    latent: LatentSize
    convolution_s: float
    copied_s: float  # padding, concatenation and caches, at these cores' share of HBM
    peak_bytes: int  # of activations and caches
    weight_bytes: int
    cores: int = 1  # of a launch

    @property
    def core_s(self) -> float:
        """Seconds of a physical core."""
        return self.cores * (self.convolution_s + self.copied_s)


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Clips, how long their videos are, and the time there is."""

    clips: float
    seconds: float
    days: float = 1.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            _require_amount(name, value)

    @property
    def clips_per_s(self) -> float:
        """To be encoded every second."""
        return self.clips / (self.days * _DAY_S)


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One thing that may run out."""

    name: str
    unit: str
    demand: float  # of the whole job
    supply: float  # of one instance
    scales: bool = True  # with clips; memory in use does not

    @property
    def instances(self) -> float:
        """How many instances it asks for, not rounded."""
        return self.demand / self.supply


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """The answer."""

    instances: int
    resources: tuple[Resource, ...]  # that grow with clips a second, most used first
    memory: tuple[Resource, ...]  # of one instance at work, most used first
    read_bytes: float
    written_bytes: float
    pixel_bytes: float  # from hosts to devices, as uint8
    clips_per_s: float  # asked for
    clips_per_s_most: float  # that so many instances reach

    def used(self, resource: Resource) -> float:
        """The share of a resource in use on so many instances."""
        return resource.instances / (self.instances if resource.scales else 1)


def capacity(
    demand: Demand, clip: ModelledClip, instance: Instance, assumed: Assumptions
) -> Capacity:
    """How many instances, what they read and write, and how full each resource is."""
    resources = _flows(demand, clip, instance, assumed)
    memory = require_memory(clip, instance, assumed)
    count = math.ceil(max(resource.instances for resource in resources) / (1 - assumed.spare))
    most = demand.clips_per_s * count / resources[0].instances
    return Capacity(
        instances=count,
        resources=resources,
        memory=memory,
        read_bytes=demand.clips * _source_bytes(demand, assumed),
        written_bytes=demand.clips * _latent_bytes(clip, assumed),
        pixel_bytes=demand.clips * _pixels(clip.size) * clip.size.frames * _RGB,
        clips_per_s=demand.clips_per_s,
        clips_per_s_most=most,
    )


def require_memory(
    clip: ModelledClip, instance: Instance, assumed: Assumptions
) -> tuple[Resource, ...]:
    """Memory of an instance at work, most used first; a TrnconvError if it is too little."""
    memory = _memory(clip, instance, assumed)
    for resource in memory:
        if resource.instances > 1:
            raise TrnconvError(
                f"{resource.name} of {instance.name}: {resource.demand / 1e9:.0f} GB wanted, there"
                f" are {resource.supply / 1e9:.0f} GB. Give a clip more cores (cores_per_clip), or"
                " take smaller ones."
            )
    return memory


def _flows(
    demand: Demand, clip: ModelledClip, instance: Instance, assumed: Assumptions
) -> tuple[Resource, ...]:
    """What is used a second, most used first."""
    rate = demand.clips_per_s
    source_mpixel = assumed.source_area * _pixels(clip.size) / 1e6
    decoded = demand.seconds * assumed.source_fps * source_mpixel
    network = assumed.object_store_gbit_s * 1e9 / 8 * assumed.usable
    flows = (
        Resource(
            name="NeuronCores",
            unit="cores",
            demand=rate * clip.core_s / assumed.reached,
            supply=instance.cores,
        ),
        Resource(
            name="vCPUs, decoding",
            unit="vCPUs",
            demand=rate * decoded / assumed.decode_mpixel_s,
            supply=instance.vcpus * assumed.usable,
        ),
        Resource(
            name="object store, reading",
            unit="B/s",
            demand=rate * _source_bytes(demand, assumed),
            supply=network,
        ),
        Resource(
            name="object store, writing",
            unit="B/s",
            demand=rate * _latent_bytes(clip, assumed),
            supply=network,
        ),
    )
    return tuple(sorted(flows, key=lambda flow: -flow.instances))


def _memory(clip: ModelledClip, instance: Instance, assumed: Assumptions) -> tuple[Resource, ...]:
    """What an instance holds when all its cores are busy, most used first."""
    at_once = instance.cores / assumed.cores_per_clip
    pixels = _pixels(clip.size) * clip.size.frames * _RGB
    held = (
        Resource(
            name="device memory",
            unit="B",
            demand=at_once * clip.peak_bytes + instance.cores / clip.cores * clip.weight_bytes,
            supply=instance.device_gib * _GIB,
            scales=False,
        ),
        Resource(
            name="host memory",
            unit="B",
            demand=at_once * (assumed.clips_in_flight * pixels + assumed.process_gb * 1e9)
            + assumed.ray_store_gb * 1e9,
            supply=instance.host_gib * _GIB,
            scales=False,
        ),
    )
    return tuple(sorted(held, key=lambda resource: -resource.instances))


def _pixels(size: Size) -> int:
    return size.height * size.width


def _source_bytes(demand: Demand, assumed: Assumptions) -> float:
    return demand.seconds * assumed.source_mbit_s * 1e6 / 8


def _latent_bytes(clip: ModelledClip, assumed: Assumptions) -> float:
    latent = clip.latent
    values = latent.channels * latent.frames * latent.height * latent.width
    return float(values * assumed.latents * assumed.latent_bytes)
