"""Group norm in two launches: statistics of channels, then y = act(a_c x + b_c) or a_c and b_c.

    a_c = gamma_c * rsqrt(variance of c's group + eps)      b_c = beta_c - mean of c's group * a_c

Statistics are [images, parts, channels, 3]: count, mean and count * variance, of as many parts of
an image as there are cores. Whoever cuts an image otherwise may join parts of several launches.
"""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.algorithms.kernel_parts import wait_for_both
from trnconv.algorithms.recipe_parts import RecipePair
from trnconv.fused_ops.group_norm.apply_core import ApplyCore
from trnconv.fused_ops.group_norm.recipe import GroupNormRecipe
from trnconv.fused_ops.group_norm.scale_shift import IMAGES, GroupScaleShift
from trnconv.fused_ops.group_norm.statistics_core import TRIPLE, StatisticsCore
from trnconv.fused_ops.sweep_kernel import sweep_images
from trnconv.problem.prologue import FACTORS


def channel_statistics(x: nl.NkiTensor, recipe: GroupNormRecipe) -> nl.NkiTensor:
    """x [N, C, P] -> statistics [images, parts, C, 3]."""
    shape = (recipe.images, recipe.parts, recipe.shape[1], TRIPLE)
    statistics = nl.ndarray(shape, dtype=nl.float32, buffer=nl.shared_hbm, name="statistics")
    sweep_images(StatisticsCore(x, statistics, recipe), recipe.rows, recipe.width)
    return statistics


def channel_statistics_on_two_cores(x: nl.NkiTensor, recipes: RecipePair) -> nl.NkiTensor:
    """The same, with each of two cores counting its positions."""
    statistics = channel_statistics(x, recipes.cores[nl.program_id(0)])
    wait_for_both(statistics)
    return statistics


def group_scale_shift(
    statistics: nl.NkiTensor, constants: nl.NkiTensor, recipe: GroupNormRecipe
) -> nl.NkiTensor:
    """Statistics and constants -> scale_shift [C, a and b of every image]: a convolution's start.

    Of two cores, each stores half of the channels of a tile.
    """
    shape = (recipe.shape[1], FACTORS * recipe.images)
    scale_shift = nl.ndarray(shape, dtype=nl.float32, buffer=nl.shared_hbm, name="scale_shift")
    image_scale_shift = GroupScaleShift(statistics, constants, recipe)
    part, parts = recipe.part, recipe.parts
    for image in range(recipe.images):
        slot = image % IMAGES
        image_scale_shift.of_image(image, slot)
        columns = scale_shift[:, FACTORS * image : FACTORS * (image + 1)]
        for tile in range(len(recipe.tiles)):
            first, channels = recipe.tiles[tile]
            src = image_scale_shift.of_tile(tile, slot)
            begin, end = channels * part // parts, channels * (part + 1) // parts
            if end > begin:
                nisa.dma_copy(dst=columns[first + begin : first + end], src=src[begin:end])
    return scale_shift


def group_scale_shift_on_two_cores(
    statistics: nl.NkiTensor, constants: nl.NkiTensor, recipes: RecipePair
) -> nl.NkiTensor:
    """The same on both cores."""
    scale_shift = group_scale_shift(statistics, constants, recipes.cores[nl.program_id(0)])
    wait_for_both(scale_shift)
    return scale_shift


def group_norm(
    x: nl.NkiTensor, statistics: nl.NkiTensor, constants: nl.NkiTensor, recipe: GroupNormRecipe
) -> nl.NkiTensor:
    """x, statistics, and constants [partitions, gamma and beta of every tile, averages] -> y."""
    y = nl.ndarray(recipe.shape, dtype=x.dtype, buffer=nl.shared_hbm, name="y")
    core = ApplyCore(x, y, statistics, constants, recipe)
    sweep_images(core, recipe.rows, recipe.width)
    return y


def group_norm_on_two_cores(
    x: nl.NkiTensor, statistics: nl.NkiTensor, constants: nl.NkiTensor, recipes: RecipePair
) -> nl.NkiTensor:
    """The same, with each of two cores computing its positions."""
    y = group_norm(x, statistics, constants, recipes.cores[nl.program_id(0)])
    wait_for_both(y)
    return y
