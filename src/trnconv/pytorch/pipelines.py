"""`accelerate`: the autoencoder of a pipeline of diffusers on our kernels, in one line."""

from __future__ import annotations

from typing import Any

from torch import nn

from trnconv.errors import UnsupportedError
from trnconv.pytorch.patching import PatchReport, patch_

_COMPONENT = "vae"


def accelerate_pipeline(pipe: Any, **options: Any) -> PatchReport:
    """Patch the autoencoder of a pipeline, or one that is given itself; `patch_`'s options.

    The pipeline is used as before: tiling, slicing and offloading are its own and stay. Unpatch it
    with `unpatch_(pipe.vae)`.
    """
    return patch_(autoencoder_of(pipe), **options)


def autoencoder_of(pipe: Any) -> nn.Module:
    """The component called `vae`, or the model that was given."""
    component = getattr(pipe, _COMPONENT, None)
    if isinstance(component, nn.Module):
        return component
    if isinstance(pipe, nn.Module) and hasattr(pipe, "decode"):
        return pipe
    components = getattr(pipe, "components", None)
    known = f" Its components: {', '.join(sorted(components))}." if components else ""
    raise UnsupportedError(
        f"{type(pipe).__name__} has no autoencoder: a pipeline with a `vae`, or an autoencoder"
        f" with `decode`, is needed.{known} Patch other models with trnconv.pytorch.patch_."
    )
