"""Fast convolution with the input in one to three tensors, each an argument of its own."""

from __future__ import annotations

from trnconv._nki import nl
from trnconv.kernels.fast import fast
from trnconv.plan.fast_recipe import FastRecipe


def fast_of_one(
    x: nl.NkiTensor,
    weights: nl.NkiTensor,
    constants: nl.NkiTensor,
    places: nl.NkiTensor,
    residual: nl.NkiTensor | None,
    recipe: FastRecipe,
) -> nl.NkiTensor:
    """All frames in one tensor."""
    return fast((x,), weights, constants, places, residual, recipe)


def fast_of_two(
    first: nl.NkiTensor,
    second: nl.NkiTensor,
    weights: nl.NkiTensor,
    constants: nl.NkiTensor,
    places: nl.NkiTensor,
    residual: nl.NkiTensor | None,
    recipe: FastRecipe,
) -> nl.NkiTensor:
    """Frames of `first`, then of `second`."""
    return fast((first, second), weights, constants, places, residual, recipe)


def fast_of_three(
    first: nl.NkiTensor,
    second: nl.NkiTensor,
    third: nl.NkiTensor,
    weights: nl.NkiTensor,
    constants: nl.NkiTensor,
    places: nl.NkiTensor,
    residual: nl.NkiTensor | None,
    recipe: FastRecipe,
) -> nl.NkiTensor:
    """Frames of `first`, then of `second`, then of `third`."""
    return fast((first, second, third), weights, constants, places, residual, recipe)
