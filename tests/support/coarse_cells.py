"""Coarse residuals in the shape of what they are added to."""

import numpy as np


def spread(r, coarse):
    """By repeating channels and moving them into positions, as a model does."""
    images, _, *low = r.shape
    cells = np.repeat(r, coarse.repeats, axis=1).reshape(images, -1, *coarse.factors(), *low)
    sizes = [n * by for n, by in zip(low, coarse.factors(), strict=True)]
    y = cells.transpose(0, 1, 5, 2, 6, 3, 7, 4).reshape(images, -1, *sizes)
    return y[:, :, coarse.skipped :]
