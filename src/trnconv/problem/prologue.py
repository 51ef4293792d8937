"""Prologues: what happens to an input before it is padded and convolved."""

from __future__ import annotations

from dataclasses import dataclass

from trnconv._nki import NKIObject
from trnconv.errors import UnsupportedError
from trnconv.problem.epilogue import ACTIVATIONS, IDENTITY

FACTORS = 2  # numbers of a channel, for each piece of x: scale and shift


@dataclass(frozen=True)
class Prologue(NKIObject):
    """x' = activation(scale * x + shift), with a scale and a shift of each channel.

    That is a group norm once its statistics are known. Scales and shifts are data: factors
    [C_in, 2 x pieces], float32.
    """

    scaled: bool = False
    activation: str = IDENTITY


PLAIN_PROLOGUE = Prologue()


def prologue_of(activation: str) -> Prologue:
    """A start with factors, if the activation is known."""
    if activation not in ACTIVATIONS:
        raise UnsupportedError(
            f"activation {activation!r} of an input: one of {', '.join(ACTIVATIONS)}. Apply it"
            " before."
        )
    return Prologue(scaled=True, activation=activation)
