"""Ends: what happens to a sum on its way out of PSUM, besides the bias."""

from __future__ import annotations

from dataclasses import dataclass

from trnconv._nki import NKIObject
from trnconv.errors import UnsupportedError

ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}  # the types kernels take
IDENTITY = "identity"
RELU = "relu"
ACTIVATIONS = (
    IDENTITY,
    RELU,
    "silu",
    "gelu",
    "gelu_tanh",
    "tanh",
    "sigmoid",
    "softplus",
    "mish",
)
NO_RESIDUAL, BEFORE, AFTER = "none", "before", "after"
RESIDUALS = (NO_RESIDUAL, BEFORE, AFTER)


@dataclass(frozen=True)
class Epilogue(NKIObject):
    """y = activation(sum + bias [+ residual]) [+ residual], in a dtype of its own or that of x."""

    activation: str = IDENTITY
    residual: str = NO_RESIDUAL  # before or after the activation
    dtype: str = ""  # of y; empty: that of x

    def shares_engines(self) -> bool:
        """Whether Vector and Scalar engine can take turns; else both work on every tile, or one."""
        simple = (IDENTITY, RELU)
        return self.residual == NO_RESIDUAL and self.activation in simple


PLAIN_END = Epilogue()


def end_of(activation: str, residual: str, dtype: str) -> Epilogue:
    """An end, if these words are known."""
    if activation not in ACTIVATIONS:
        raise UnsupportedError(
            f"activation {activation!r}: the eviction knows {', '.join(ACTIVATIONS)}."
            " Apply it afterwards."
        )
    if dtype not in ("", *ITEM_BYTES):
        raise UnsupportedError(f"an output in {dtype}: one of {', '.join(ITEM_BYTES)}.")
    if residual not in RESIDUALS:
        raise UnsupportedError(f"residual {residual!r} the activation: one of before, after.")
    return Epilogue(activation, residual, dtype)
