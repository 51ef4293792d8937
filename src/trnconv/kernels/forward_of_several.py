"""Forward convolution with the input in two or three tensors, each an argument of its own.

A causal cache and a chunk are two; two cached frames that lie apart and a chunk are three.
"""

from __future__ import annotations

from trnconv._nki import nl
from trnconv.kernels.forward import forward_of_pieces
from trnconv.plan.recipe import Recipe


def forward_of_two(
    first: nl.NkiTensor,
    second: nl.NkiTensor,
    weights: nl.NkiTensor,
    bias: nl.NkiTensor,
    places: nl.NkiTensor,
    residual: nl.NkiTensor | None,
    recipe: Recipe,
) -> nl.NkiTensor:
    """Frames of `first`, then of `second`."""
    return forward_of_pieces((first, second), weights, bias, places, residual, recipe)


def forward_of_three(
    first: nl.NkiTensor,
    second: nl.NkiTensor,
    third: nl.NkiTensor,
    weights: nl.NkiTensor,
    bias: nl.NkiTensor,
    places: nl.NkiTensor,
    residual: nl.NkiTensor | None,
    recipe: Recipe,
) -> nl.NkiTensor:
    """Frames of `first`, then of `second`, then of `third`."""
    return forward_of_pieces((first, second, third), weights, bias, places, residual, recipe)
