"""Versions of all that computes latents: another one may give others, be it in their last bits."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from importlib import metadata

from trnconv.corpus.storage.needs import needed_for
from trnconv.errors import UnsupportedError

_TOOLCHAIN = ("neuronx-cc", "nki", "torch-neuronx", "torch-xla")  # of the neuron backend


@dataclass(frozen=True, kw_only=True)
class Versions:
    """Of this library, of those that it computes with, and of what decodes."""

    trnconv: str
    torch: str
    diffusers: str  # the models' code
    av: str
    ffmpeg: str
    neuron: str = ""  # the toolchain of devices, where they are used

    def differences(self, before: Versions | None) -> dict[str, str]:
        """In words and by name, what is not as it was; everything, if that was not noted."""
        was = asdict(before) if before is not None else {}
        return {
            name: f"{name} was {was.get(name, 'not noted')} and is {value}"
            for name, value in asdict(self).items()
            if was.get(name) != value and (value or name in was)
        }


NAMES = tuple(Versions.__dataclass_fields__)


@cache
def versions_here(backend: str) -> Versions:
    """Those of this process, as a backend uses them."""
    with needed_for("decoding videos"):
        import av

    from nkisim.version import __version__

    return Versions(
        trnconv=__version__,
        torch=_installed("torch"),
        diffusers=_installed("diffusers"),
        av=av.__version__,
        ffmpeg=av.ffmpeg_version_info,
        neuron=", ".join(f"{name} {_installed(name)}" for name in _toolchain(backend)),
    )


def _toolchain(backend: str) -> list[str]:
    return [name for name in _TOOLCHAIN if backend == "neuron" and _installed(name)]


def _installed(name: str) -> str:
    """A package's version; "" if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def require_names(names: tuple[str, ...]) -> None:
    """Refuse the name of a version that is not noted."""
    for name in names:
        if name not in NAMES:
            raise UnsupportedError(f"version of {name!r}: one of {', '.join(NAMES)}.")
