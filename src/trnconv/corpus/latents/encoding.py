"""The model at work: pixels in, latents out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from trnconv.corpus.latents.precision import AUTO, DTYPES, Precision, chosen_precision
from trnconv.corpus.latents.spool import bytes_of
from trnconv.corpus.storage.needs import needed_for
from trnconv.errors import UnsupportedError
from trnconv.models import find

if TYPE_CHECKING:
    import torch

    from trnconv.corpus.videos.video_reader import Pixels

BACKENDS = ("torch", "nkisim", "neuron")
OUTPUTS = ("mode", "mean+logvar")
NEURON_PACKAGES = {"xla": "torch_xla", "neuron": "torch_neuronx"}  # by name of torch's device
_WHITE = 255


@dataclass(frozen=True, kw_only=True)
class EncoderSettings:
    """Everything the latents depend on, besides pixels."""

    model: str  # of the registry
    weights: str | None = None  # a folder as diffusers saves it; None: random weights
    subfolder: str | None = None  # of that folder
    reduced: bool = False  # the registry's narrow configuration: for trials
    seed: int = 0  # of random weights
    backend: str = "torch"
    dtype: str = AUTO  # of the model and of the latents; auto: what keeps to `latent_error`
    latent_error: float | None = None  # RMS, of float32's latents; None: as precision.py says
    output: str = "mean+logvar"
    device: str = "xla"  # as torch calls Neuron devices; for the neuron backend
    threads: int = 1  # of torch, on a CPU; sums may depend on it

    def __post_init__(self) -> None:
        for name, value, known in (
            ("backend", self.backend, BACKENDS),
            ("dtype", self.dtype, (AUTO, *DTYPES)),
            ("output", self.output, OUTPUTS),
            ("device", self.device, tuple(NEURON_PACKAGES)),
        ):
            if value not in known:
                raise UnsupportedError(f"{name} {value!r}: one of {', '.join(known)}.")
        entry = find(self.model)
        if "encode" not in entry.phases:
            raise UnsupportedError(f"encoding with {self.model}: it can only decode.")
        if self.weights is not None and self.reduced:
            raise UnsupportedError("a reduced model has random weights: leave the weights out.")
        assert self.precision  # asks for what can be had, else it is refused here

    @property
    def precision(self) -> Precision:
        """The types that are computed and kept in, and how far latents are from float32's."""
        return chosen_precision(self.model, self.dtype, self.latent_error)

    @property
    def tensors(self) -> tuple[str, ...]:
        """The names of a clip's tensors."""
        return tuple(self.output.split("+"))


class Encoder:
    """A model of the registry on trnconv's kernels, one clip at a time.

    One at a time, so that a clip's latents do not depend on its neighbours.
    """

    def __init__(self, settings: EncoderSettings) -> None:
        with needed_for("encoding videos"):
            import torch

            from trnconv.pytorch import model_builder, patch_

        torch.set_num_threads(settings.threads)
        self._settings = settings
        self._entry = find(settings.model)
        precision = settings.precision
        self._dtype = getattr(torch, precision.model_dtype)
        self._kept = getattr(torch, precision.latent_dtype)
        self._device = _device(settings)
        if settings.weights is None:
            model = model_builder.build(
                self._entry, reduced=settings.reduced, dtype=self._dtype, seed=settings.seed
            )
        else:
            model = model_builder.load(
                self._entry, settings.weights, subfolder=settings.subfolder, dtype=self._dtype
            )
        self.weights_sha256 = _sha256_of_weights(model)
        self._model = model.to(self._device)
        patch_(self._model, backend=settings.backend, accuracy=precision.accuracy)
        self.shapes: set[tuple[int, ...]] = set()  # each was planned, and on a device compiled

    def encode(self, pixels: Pixels) -> dict[str, torch.Tensor]:
        """Latents of a clip by name, without a batch axis: (channels, frames, height, width)."""
        import torch

        from trnconv.pytorch import model_builder

        self.shapes.add(pixels.shape)
        rgb = torch.from_numpy(pixels).to(self._device).movedim(-1, 0)
        video = (rgb.to(torch.float32) * (2 / _WHITE) - 1).to(self._dtype)
        with torch.no_grad():
            if self._settings.output == "mode":
                kept = {"mode": model_builder.encode(self._model, self._entry, video[None])}
            else:
                moments = model_builder.encode_moments(self._model, self._entry, video[None])
                kept = dict(zip(self._settings.tensors, moments, strict=True))
        return {name: value[0].to("cpu", self._kept).contiguous() for name, value in kept.items()}


def sha256_of(tensors: dict[str, torch.Tensor]) -> str:
    """A checksum of values, types and shapes, by name."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(bytes_of(tensor))
    return digest.hexdigest()


def _sha256_of_weights(model: torch.nn.Module) -> str:
    return sha256_of({name: value.detach() for name, value in model.state_dict().items()})


def _device(settings: EncoderSettings) -> str:
    """Where the tensors are; a Neuron device is looked for now, not at the first clip."""
    if settings.backend != "neuron":
        return "cpu"
    import torch

    package = NEURON_PACKAGES[settings.device]
    try:
        import_module(package)
        torch.empty(1, device=settings.device)
    except (ImportError, RuntimeError) as absent:
        raise UnsupportedError(
            f"backend neuron on device {settings.device}: {package} does not give torch one here"
            f" ({absent}). Use an instance with Neuron devices and its toolchain, or backend torch"
            " or nkisim."
        ) from absent
    return settings.device
