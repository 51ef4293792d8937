"""Convolution for AWS Trainium.

`conv1d` ... `conv_transpose3d` compute with NumPy arrays what torch's functions of that name do: a
plan is chosen (`trnconv.planner`), the kernel of its algorithm (`trnconv.algorithms`) runs in
`nkisim`. `accelerate` puts the autoencoder of a pipeline of diffusers on the kernels. `explain`
says what was planned, why, and how long it is modelled to take. The definition is
`trnconv.reference`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trnconv.pytorch.patching import PatchReport
    from trnconv.runtime.functional import (
        conv1d,
        conv2d,
        conv3d,
        conv_transpose1d,
        conv_transpose2d,
        conv_transpose3d,
        explain,
    )

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "accelerate",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "explain",
]


def accelerate(pipe: Any, **options: Any) -> PatchReport:
    """Put the autoencoder of a pipeline of diffusers (`pipe.vae`) on our kernels, in place.

    `options` are those of `trnconv.pytorch.patch_`, which is what it does. PyTorch is needed.
    """
    from trnconv.pytorch.pipelines import accelerate_pipeline  # noqa: PLC0415 (torch is optional)

    return accelerate_pipeline(pipe, **options)


def __getattr__(name: str) -> Any:
    """The functions, loaded when one is asked for: commands that need none start at once."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from trnconv.runtime import functional  # noqa: PLC0415

    return getattr(functional, name)


def __dir__() -> list[str]:
    """What there is, loaded or not."""
    return sorted({*globals(), *__all__})
