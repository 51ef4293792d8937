"""How far latents may be from those of float32, and the types that keep them there.

An error is the root mean square of the difference, of that of float32's latents. Arithmetic in 16
bits rounds after every operator, and an encoder adds that up. What it comes to was computed for
every model of the registry (`python -m benchmarks latents`: reduced, random weights, beside the
model in float64) and is in `data/precision.json`. Trained weights can lose more: users report
visible damage by Wan's encoder in bf16. So the default is float32, rounded once when kept.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources

from trnconv.errors import UnsupportedError

AUTO = "auto"
DTYPES = ("float32", "bfloat16", "float16")
DEFAULT_ERROR = 2.0**-8  # a step of bf16: twice what rounding a latent once can be off
# Roundings of ours are other ones than torch's, as many or fewer: twice its error, and a step
_FACTOR = 2.0
_STEPS = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-8}  # the most, of a value
_LADDER = (("bfloat16", "bfloat16"), ("float32", "bfloat16"), ("float32", "float32"))


@dataclass(frozen=True)
class Precision:
    """Types, and the error that latents have with them at most, as far as random weights show."""

    model_dtype: str
    latent_dtype: str
    error_at_most: float | None  # RMS, of float32's latents; None: nobody has looked

    @property
    def accuracy(self) -> str:
        """The policy of convolutions: float32 ones stay direct."""
        return "direct" if self.model_dtype == "float32" else "bf16"


def chosen_precision(model: str, dtype: str, error: float | None) -> Precision:
    """What is asked for; with `auto`, the cheapest types whose error is within `error`."""
    if error is not None and not 0 < error < 1:
        raise UnsupportedError(f"latent_error of {error}: a share of the latents, from 0 to 1.")
    if dtype != AUTO:
        precision = Precision(dtype, dtype, error_of(model, dtype, dtype))
        if error is not None and not _is_within(precision.error_at_most, error):
            raise UnsupportedError(
                f"dtype {dtype} with {model} has an error"
                f" {describe_error(precision.error_at_most)}; {error:g} is asked"
                f" for. Leave dtype to {AUTO}, or accept more."
            )
        return precision
    wanted = DEFAULT_ERROR if error is None else error
    for model_dtype, latent_dtype in _LADDER:
        at_most = error_of(model, model_dtype, latent_dtype)
        if _is_within(at_most, wanted):
            return Precision(model_dtype, latent_dtype, at_most)
    raise UnsupportedError(
        f"latent_error of {wanted:g} with {model}: float32 itself is off {describe_error(at_most)}."
    )


def describe_error(error: float | None) -> str:
    """The most that latents are off."""
    return "that nobody has computed" if error is None else f"by up to {error:.2g}"


def _is_within(error: float | None, limit: float) -> bool:
    return error is not None and error <= limit


def error_of(model: str, model_dtype: str, latent_dtype: str) -> float | None:
    """The most that latents are off: by the arithmetic, and by rounding them, half a step."""
    floor = _floors().get(model, {}).get(model_dtype)
    if floor is None:
        return None
    return _FACTOR * floor + _STEPS[model_dtype] + _STEPS[latent_dtype] / 2


@cache
def _floors() -> dict[str, dict[str, float]]:
    """Errors of torch's arithmetic, by model and type."""
    text = resources.files("trnconv.corpus").joinpath("data/precision.json").read_text("utf-8")
    read: dict[str, dict[str, float]] = json.loads(text)
    return read
