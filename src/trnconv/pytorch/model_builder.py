"""Models of the registry as torch modules, with random or saved weights, all called one way.

Videos and latents are `(batch, channels, frames, height, width)` here, for every model; an image
has one frame.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from trnconv.errors import ShapeError, UnsupportedError
from trnconv.models import ModelEntry, Size, latent_size
from trnconv.pytorch.networks.tiny_video import TinyVideoAutoencoder
from trnconv.pytorch.networks.turbo_video import TurboVideoDecoder

DECODE_TIMESTEP = 0.05  # LTX decoders are told how noisy the latent is: a little
NOISE_SEED = 0  # of decoders that draw noise: equal calls give equal results
DISTRIBUTION = "latent_dist"  # Calling.encoded
SPREAD = 0.1  # standard deviation of biases, and of what is added to affine parameters
OWN = {made.__name__: made for made in (TinyVideoAutoencoder, TurboVideoDecoder)}


def build(
    entry: ModelEntry,
    *,
    reduced: bool = False,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    tiling: str = "default",
) -> torch.nn.Module:
    """The model with random weights, in eval mode, no parameter asking for a gradient.

    On `device="meta"` it has shapes only. Elsewhere the weights depend on the seed alone; they keep
    the variance of what passes, and no bias is zero. `reduced=True` takes the narrow configuration.
    Tiling is the model's own: as its class leaves it (`default`), `off`, or `on`.
    """
    with _undisturbed_random_numbers(seed):
        model = _constructed(entry, reduced=reduced, on_meta=device == "meta")
        if device != "meta":
            _randomize(model, torch.Generator().manual_seed(seed))
    for name, value in (entry.reduced_attributes if reduced else {}).items():
        _set_existing(model, name, value)
    _set_tiling(model, entry, tiling)
    # Not model.to(): diffusers' own warns about every cast of a model it did not load.
    torch.nn.Module.to(model, device=device, dtype=dtype)
    return model.eval().requires_grad_(requires_grad=False)


def load(
    entry: ModelEntry,
    folder: str,
    *,
    subfolder: str | None = None,
    dtype: torch.dtype = torch.float32,
) -> torch.nn.Module:
    """The model with the weights of a folder that diffusers saved, in eval mode, for inference.

    Refused unless the folder's configuration is the entry's. Nothing is downloaded.
    """
    if entry.own_class:
        raise UnsupportedError(
            f"weights of {entry.name}: {entry.own_class} is our imitation, for shapes and times."
            " Load its authors' own module, and patch that."
        )
    saved = Path(folder, subfolder or "")
    config = saved / "config.json"
    if not config.is_file():
        raise UnsupportedError(
            f"weights of {entry.name} in {saved}: there is no config.json. Name the local folder"
            " that diffusers saved the autoencoder to; a pipeline has it in its subfolder vae."
        )
    _require_config(entry, saved, json.loads(config.read_text(encoding="utf-8")))
    model = _diffusers_class(entry).from_pretrained(
        str(saved), torch_dtype=dtype, local_files_only=True
    )
    assert isinstance(model, torch.nn.Module)
    return model.eval().requires_grad_(requires_grad=False)


def encode(model: torch.nn.Module, entry: ModelEntry, video: torch.Tensor) -> torch.Tensor:
    """The mode of the latent distribution of a video, or the latent of a model that has none."""
    encoded = _encoded(model, entry, video)
    latent: torch.Tensor = encoded.mode() if entry.calling.encoded == DISTRIBUTION else encoded
    return _as_video(entry, latent, video)


def encode_moments(
    model: torch.nn.Module, entry: ModelEntry, video: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and log variance of the latent distribution of a video."""
    if entry.calling.encoded != DISTRIBUTION:
        raise UnsupportedError(
            f"moments of a latent of {entry.name}: {entry.class_name} makes one latent, no"
            " distribution. Encode without moments."
        )
    distribution = _encoded(model, entry, video)
    if not hasattr(distribution, "logvar"):
        raise UnsupportedError(f"mean and log variance of {entry.name}: it has the mode alone.")
    mean, logvar = distribution.mean, distribution.logvar
    return _as_video(entry, mean, video), _as_video(entry, logvar, video)


def _encoded(model: torch.nn.Module, entry: ModelEntry, video: torch.Tensor) -> Any:
    _require_phase(entry, "encode")
    _require_axes(entry, "a video", video, {entry.pixel_channels})
    encoded = _method(model, "encode")(_in_axes_of(entry, _after_first_frames(entry, video)))
    is_bare = isinstance(encoded, torch.Tensor)
    return encoded if is_bare else getattr(encoded, entry.calling.encoded)


def _as_video(entry: ModelEntry, latent: torch.Tensor, video: torch.Tensor) -> torch.Tensor:
    return _with_frames(latent, video.shape[0]) if entry.calling.input == "frames" else latent


def decode(model: torch.nn.Module, entry: ModelEntry, latent: torch.Tensor) -> torch.Tensor:
    """The video of a latent. Noise that a decoder draws is the same in every call."""
    _require_phase(entry, "decode")
    channels = {entry.latent_channels, entry.reduced_latent_channels}
    _require_axes(entry, "a latent", latent, channels)
    with _undisturbed_random_numbers(NOISE_SEED):
        arguments = _decode_arguments(entry, latent)
        decoded = _method(model, "decode")(_in_axes_of(entry, latent), **arguments)
    sample: torch.Tensor = decoded if isinstance(decoded, torch.Tensor) else decoded.sample
    if entry.calling.decoded == "frames":
        return _with_frames(sample, latent.shape[0])
    return sample.movedim(1, 2) if entry.calling.decoded == "frames_before_channels" else sample


def example_video(
    entry: ModelEntry,
    size: Size,
    *,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> torch.Tensor:
    """One clip of pixels, uniform in [-1, 1]; refused if the model cannot take the size."""
    latent_size(entry, size)
    shape = (1, entry.pixel_channels, size.frames, size.height, size.width)
    if device == "meta":
        return torch.empty(shape, device=device, dtype=dtype)
    pixels = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    return pixels.to(device=device, dtype=dtype)


def example_latent(
    entry: ModelEntry,
    size: Size,
    *,
    reduced: bool = False,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> torch.Tensor:
    """The latent of a clip of this size, drawn from N(0, 1)."""
    latent = latent_size(entry, size, reduced=reduced)
    shape = (1, latent.channels, latent.frames, latent.height, latent.width)
    if device == "meta":
        return torch.empty(shape, device=device, dtype=dtype)
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return values.to(device=device, dtype=dtype)


@contextmanager
def _undisturbed_random_numbers(seed: int) -> Iterator[None]:
    """Random numbers drawn inside follow from the seed; those drawn afterwards do not notice."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def _constructed(entry: ModelEntry, *, reduced: bool, on_meta: bool) -> torch.nn.Module:
    make = OWN[entry.own_class] if entry.own_class else _diffusers_class(entry)
    config = _thawed(entry.reduced_config if reduced else entry.config)
    with torch.device("meta" if on_meta else "cpu"):
        model = make(**config)
    assert isinstance(model, torch.nn.Module)
    return model


def class_of_diffusers(name: str) -> Any:
    """A class of the installed diffusers; None if it does not have it."""
    return getattr(importlib.import_module("diffusers"), name, None)


def _diffusers_class(entry: ModelEntry) -> Any:
    try:
        diffusers = importlib.import_module("diffusers")
    except ImportError as missing:
        raise UnsupportedError(
            f"building {entry.name}: its class {entry.diffusers_class} is part of diffusers, which"
            " cannot be imported here. Run `pip install 'trnconv[diffusers]'`."
        ) from missing
    cls = getattr(diffusers, entry.diffusers_class, None)
    if cls is None:
        raise UnsupportedError(
            f"building {entry.name}: diffusers {diffusers.__version__} has no"
            f" {entry.diffusers_class}. Install a newer one."
        )
    return cls


def _require_config(entry: ModelEntry, saved: Path, config: dict[str, Any]) -> None:
    """The saved model is the entry's, in every value that the entry states."""
    stated = {"_class_name": entry.diffusers_class, **_thawed(entry.config)}
    for name, value in stated.items():
        if config.get(name, value) != value:
            raise UnsupportedError(
                f"weights in {saved} for {entry.name}: its configuration has {name}"
                f" {config[name]!r}, and {entry.name} {value!r}. Name the model they belong to."
            )


def _thawed(value: Any) -> Any:
    """Mappings and tuples as the dicts and lists of a configuration file, which classes expect."""
    if isinstance(value, Mapping):
        return {name: _thawed(inner) for name, inner in value.items()}
    return [_thawed(inner) for inner in value] if isinstance(value, tuple) else value


def _randomize(model: torch.nn.Module, generator: torch.Generator) -> None:
    """Weights of variance 1 / fan-in, biases about zero, and all else near what the class chose."""
    linear_maps = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d, torch.nn.Linear)
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            noise = torch.randn(parameter.shape, generator=generator)
            if isinstance(module, linear_maps):
                fan_in = module.weight[0].numel()
                drawn = noise / fan_in**0.5 if name == "weight" else noise * SPREAD
            else:
                drawn = parameter.data + noise * SPREAD
            parameter.data.copy_(drawn)


def _set_existing(model: torch.nn.Module, name: str, value: Any) -> None:
    if not hasattr(model, name):
        raise UnsupportedError(
            f"{type(model).__name__} has no attribute {name}, which the registry sets. Use the"
            " release of diffusers that the registry was written for, 0.42.1."
        )
    setattr(model, name, value)


def _set_tiling(model: torch.nn.Module, entry: ModelEntry, tiling: str) -> None:
    if tiling not in entry.tilings:
        raise UnsupportedError(
            f"tiling={tiling!r} for {entry.name}: {entry.class_name} can do"
            f" {', '.join(entry.tilings)}."
        )
    cannot_do_without = "off" not in entry.tilings
    if tiling == "on" or cannot_do_without:
        _method(model, "enable_tiling")()
    if tiling == "off":
        for switch in ("use_tiling", "use_framewise_encoding", "use_framewise_decoding"):
            if hasattr(model, switch):
                setattr(model, switch, False)


def _method(model: torch.nn.Module, name: str) -> Any:
    return getattr(model, name)


def _in_axes_of(entry: ModelEntry, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in the axes that the class takes."""
    return tensor.movedim(2, 1).flatten(0, 1) if entry.calling.input == "frames" else tensor


def _after_first_frames(entry: ModelEntry, video: torch.Tensor) -> torch.Tensor:
    """The clip, after the copies of its first frame that the class wants."""
    copies = entry.calling.first_frames
    return torch.cat([video[:, :, :1].repeat(1, 1, copies, 1, 1), video], 2) if copies else video


def _with_frames(images: torch.Tensor, batch: int) -> torch.Tensor:
    """Images that are the frames of `batch` videos, as videos."""
    return images.reshape(batch, -1, *images.shape[1:]).movedim(1, 2)


def _decode_arguments(entry: ModelEntry, latent: torch.Tensor) -> dict[str, Any]:
    if entry.calling.decode_argument == "timestep":
        return {"temb": latent.new_full((latent.shape[0],), DECODE_TIMESTEP)}
    if entry.calling.decode_argument == "num_frames":
        return {"num_frames": latent.shape[2]}
    return {}


def _require_phase(entry: ModelEntry, phase: str) -> None:
    if phase not in entry.phases:
        raise UnsupportedError(f"{phase} of {entry.name}: it can {' and '.join(entry.phases)}.")


def _require_axes(entry: ModelEntry, what: str, tensor: torch.Tensor, channels: set[int]) -> None:
    if tensor.ndim != 5 or tensor.shape[1] not in channels:
        allowed = " or ".join(str(number) for number in sorted(channels))
        raise ShapeError(
            f"{what} for {entry.name} of shape {tuple(tensor.shape)}: it is (batch, channels,"
            f" frames, height, width) with {allowed} channels; an image has one frame."
        )
