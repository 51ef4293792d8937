"""Epilogues: what happens to a sum on its way out of PSUM, besides the bias."""

from __future__ import annotations

from dataclasses import dataclass

from trnconv._nki import NKIObject
from trnconv.errors import UnsupportedError
from trnconv.problem.coarse_residual import CoarseResidual

ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}  # the types kernels take
IDENTITY = "identity"
RELU = "relu"
LEAKY_RELU = "leaky_relu"
ELU = "elu"
ACTIVATIONS = (  # a function of the Scalar engine each
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
# Of several instructions, at the end of a direct convolution only. A slope follows the name.
COMPOSED = (LEAKY_RELU, ELU)
_DEFAULT_SLOPE = 0.01  # of negative values, as in torch
NO_RESIDUAL, BEFORE, AFTER = "none", "before", "after"
RESIDUALS = (NO_RESIDUAL, BEFORE, AFTER)
_SEPARATOR = "/"
_OPTION = ":"


@dataclass(frozen=True)
class NormEpilogue(NKIObject):
    """z = activation(scale_c * y * (sum over c of y^2 + e)^-1/2 + b_c): a norm of y over channels.

    Scales and b are data: [C_out, 2], float32. y is rounded to its type before it is normed.
    """

    under_root: float  # e
    activation: str = IDENTITY
    has_beta: bool = False
    keeps: bool = True  # whether y is stored too
    first: int = 0  # frames of z that get a tensor of their own, before the others; 0: one tensor

    def frames(self, every: int) -> tuple[int, ...]:
        """Frames of each tensor of z, of so many in all."""
        return (self.first, every - self.first) if self.first else (every,)


def norm_text(norm: NormEpilogue) -> str:
    """As ops of torch take it; `norm_epilogue_of` is the inverse."""
    numbers = (int(norm.has_beta), int(norm.keeps), norm.first)
    return _SEPARATOR.join((norm.under_root.hex(), norm.activation, *map(str, numbers)))


def norm_epilogue_of(text: str) -> NormEpilogue | None:
    """The norm of a text that `norm_text` gave; None if it is empty."""
    if not text:
        return None
    under_root, activation, has_beta, keeps, first = text.split(_SEPARATOR)
    flags = (bool(int(has_beta)), bool(int(keeps)))
    return NormEpilogue(float.fromhex(under_root), activation, *flags, int(first))


@dataclass(frozen=True)
class Epilogue(NKIObject):
    """y = activation(sum + bias [+ residual]) [+ residual], in a dtype of its own or that of x."""

    activation: str = IDENTITY  # one of ACTIVATIONS, `leaky_relu` of a slope, or ELU
    residual: str = NO_RESIDUAL  # before or after the activation
    dtype: str = ""  # of y; empty: that of x
    norm: NormEpilogue | None = None  # what is stored besides y, or instead
    coarse: CoarseResidual | None = None  # how the residual is stored; None: as y is

    def shares_engines(self) -> bool:
        """Whether Vector and Scalar engine can take turns; else both work on every tile, or one."""
        simple = (IDENTITY, RELU)
        return self.residual == NO_RESIDUAL and self.activation in simple


PLAIN_EPILOGUE = Epilogue()


def leaky_relu(slope: float) -> str:
    """max(z, slope z), as an activation is named."""
    return f"{LEAKY_RELU}{_OPTION}{slope!r}"


def slope_of(activation: str) -> float:
    """What negative values are multiplied by; 0 if it is no leaky ReLU."""
    name, _, option = activation.partition(_OPTION)
    if name != LEAKY_RELU:
        return 0.0
    try:
        slope = float(option) if option else _DEFAULT_SLOPE
    except ValueError:
        slope = 0.0
    if not 0 < slope <= 1:
        raise UnsupportedError(
            f"activation {activation!r}: a slope is above 0 and at most 1, as in"
            f" {leaky_relu(0.1)!r}. Apply it afterwards."
        )
    return slope


def is_composed(activation: str) -> bool:
    """Whether it takes several instructions."""
    return activation.partition(_OPTION)[0] in COMPOSED


def composed_steps(epilogue: Epilogue, *, scalar_adds: bool) -> tuple[int, float]:
    """Instructions for a tile of a composed activation, and passes of the busier engine.

    (1, 1) for other epilogues. A leaky ReLU has one instruction on each engine, if the Scalar
    engine adds a bias to what it copies; an ELU three, one of which the engines take in turns. The
    Vector engine adds a residual in one more.
    """
    if not is_composed(epilogue.activation):
        return 1, 1.0
    added = 0 if epilogue.residual == NO_RESIDUAL else 1
    if epilogue.activation == ELU:
        return 3 + added, 1.5 + added
    return 2 + added, 1 + (added if scalar_adds or epilogue.residual == BEFORE else added + 1)


def known_activation(activation: str) -> str:
    """The activation of an end as all call it: a slope is written in one way only."""
    if slope_of(activation):
        return leaky_relu(slope_of(activation))
    if activation not in (*ACTIVATIONS, ELU):
        raise UnsupportedError(
            f"activation {activation!r}: the eviction knows {', '.join((*ACTIVATIONS, *COMPOSED))}."
            " Apply it afterwards."
        )
    return activation


def epilogue_of(activation: str, residual: str, dtype: str) -> Epilogue:
    """An end, if these words are known."""
    known = known_activation(activation)
    if dtype not in ("", *ITEM_BYTES):
        raise UnsupportedError(f"an output in {dtype}: one of {', '.join(ITEM_BYTES)}.")
    if residual not in RESIDUALS:
        raise UnsupportedError(f"residual {residual!r} the activation: one of before, after.")
    return Epilogue(known, residual, dtype)
