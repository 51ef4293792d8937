"""Random layers of torch, plain and transposed, and what users do to them; by a number.

Whole numbers, of which every sum is exact in every type: equal results are equal bits.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from integer_networks import integers, with_integers

PLAIN = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
MODES = ("zeros", "zeros", "reflect", "replicate", "circular")
CASTS = {"half": torch.float16, "bfloat16": torch.bfloat16, "double": torch.float64}


@dataclass(frozen=True)
class RandomCall:
    """A layer in a model, its input, and the circumstances."""

    model: nn.Module
    x: torch.Tensor
    options: dict[str, Any]  # of the call
    cast: str  # of the layer: a key of CASTS, or empty
    cast_first: bool  # before it is patched
    autocast: bool
    gradients: bool
    lazy: bool


class Joined(nn.Module):
    """Hands a lazy tensor to a layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, **options: Any) -> torch.Tensor:
        """The layer, on a copy."""
        joined = torch.cat([x, x[:0]]) if x.dim() else x
        result: torch.Tensor = self.layer(joined, **options)
        return result


def random_call(number: int) -> RandomCall:
    """The call of this number; many are errors, as users make them."""
    rng = random.Random(number)  # noqa: S311 (no secrets)
    rank = rng.choice((1, 2, 3))
    layer = _transposed(rng, rank) if rng.random() < 0.35 else _plain(rng, rank)
    layer = with_integers(layer, seed=number)
    options: dict[str, Any] = {}
    if isinstance(layer, TRANSPOSED) and rng.random() < 0.2:
        options["output_size"] = [rng.randint(0, 14) for _ in range(rank)]
    cast = rng.choice((*[""] * 8, *CASTS))
    x = _input(rng, layer, rank, CASTS.get(cast) if rng.random() < 0.9 else None)
    autocast = rng.random() < 0.1
    return RandomCall(
        model=Joined(layer) if rng.random() < 0.7 else layer,
        x=x,
        options=options,
        cast=cast,
        cast_first=rng.random() < 0.5,
        autocast=autocast,
        gradients=not (cast or autocast) and rng.random() < 0.5,
        lazy=rng.random() < 0.8,
    )


def _numbers(rng: random.Random, rank: int, least: int, most: int) -> tuple[int, ...]:
    return tuple(rng.randint(least, most) for _ in range(rank))


def _channels(rng: random.Random) -> tuple[int, int, int]:
    groups = rng.choice((1, 1, 1, 2, 4))
    return groups * rng.choice((1, 2)), groups * rng.choice((1, 2, 3)), groups


def _transposed(rng: random.Random, rank: int) -> nn.Module:
    inputs, outputs, groups = _channels(rng)
    return TRANSPOSED[rank - 1](
        inputs,
        outputs,
        _numbers(rng, rank, 1, 3),
        stride=_numbers(rng, rank, 1, 3),
        padding=_numbers(rng, rank, 0, 2),
        output_padding=_numbers(rng, rank, 0, 2) if rng.random() < 0.4 else 0,
        groups=groups,
        bias=rng.random() < 0.5,
        dilation=_numbers(rng, rank, 1, 2),
    )


def _plain(rng: random.Random, rank: int) -> nn.Module:
    inputs, outputs, groups = _channels(rng)
    is_named = rng.random() < 0.15
    layer = PLAIN[rank - 1](
        inputs,
        outputs,
        _numbers(rng, rank, 1, 3),
        stride=1 if is_named or rng.random() < 0.5 else _numbers(rng, rank, 1, 3),
        padding=rng.choice(("same", "valid")) if is_named else _numbers(rng, rank, 0, 2),
        dilation=_numbers(rng, rank, 1, 2),
        groups=groups,
        bias=rng.random() < 0.5,
        padding_mode=rng.choice(MODES),
    )
    for chance, change in (
        (0.08, {"padding": _numbers(rng, rank, 0, 2)}),
        (0.03, {"padding": 1}),
        (0.03, {"stride": 2}),
        (0.03, {"padding_mode": "unknown"}),
        (0.05, {"padding_mode": "constant"}),
        (0.1, {"_reversed_padding_repeated_twice": _numbers(rng, 2 * rank, 0, 2)}),
        (0.03, {"_reversed_padding_repeated_twice": [1, 1]}),
    ):
        if rng.random() < chance:
            vars(layer).update(change)
    return layer


def _input(
    rng: random.Random, layer: nn.Module, rank: int, dtype: torch.dtype | None
) -> torch.Tensor:
    sizes = [rng.choice((1, 2, 3, 5, 6, 7, 8)) for _ in range(rank)]
    if rng.random() < 0.04:
        sizes[rng.randrange(rank)] = 0
    channels = int(layer.in_channels) + (rng.random() < 0.03)
    shape = [rng.choice((0, 1, 1, 1, 2, 2, 2, 2)), channels, *sizes]
    shape = shape[1:] if rng.random() < 0.15 else shape
    x = integers(*([1, *shape] if rng.random() < 0.02 else shape), seed=rng.randrange(99))
    if x.dim() == 4 and rng.random() < 0.2:
        x = x.to(memory_format=torch.channels_last)
    odd = rng.choice((torch.int64, torch.float64, torch.complex64, torch.bfloat16))
    return x.to(odd if rng.random() < 0.05 else dtype or torch.float32)
