"""A residual of lower resolution: which element is added where, beside torch's own words for it."""

from itertools import product

import numpy as np
import pytest

from coarse_cells import spread
from trnconv.problem.coarse_residual import CoarseResidual, coarse_residual_of
from trnconv.problem.epilogue import Epilogue
from trnconv.records import from_json, to_json

CASES = [
    CoarseResidual(2, 2, 2, 8),
    CoarseResidual(2, 2, 2, 8, skipped=1),
    CoarseResidual(1, 2, 2, 2),
    CoarseResidual(2, 2, 2, 4, skipped=1),
    CoarseResidual(2, 2, 2, 2),
    CoarseResidual(1, 3, 2, 6),
]


@pytest.mark.parametrize("coarse", CASES, ids=CoarseResidual.text)
def test_a_kernel_reads_what_a_model_spreads(coarse):
    r = np.arange(2 * 8 * 3 * 2 * 5).reshape(2, 8, 3, 2, 5)
    y = spread(r, coarse)
    assert coarse.is_readable()
    assert coarse.spread(r.shape) == y.shape
    assert coarse.sizes(y.shape) == r.shape
    for c, t, h, w in product(*map(range, y.shape[1:])):
        frame, inside = divmod(t + coarse.skipped, coarse.frames)
        channel = c * coarse.channel_step()
        channel += coarse.channel(0, (inside, 0)) + coarse.channel(0, (0, h % coarse.rows))
        assert y[1, c, t, h, w] == r[1, channel, frame, h // coarse.rows, w // coarse.columns]


@pytest.mark.parametrize(
    "coarse", [CoarseResidual(1, 2, 2, 1), CoarseResidual(1, 2, 2, 3)], ids=CoarseResidual.text
)
def test_columns_of_different_channels_are_not_readable(coarse):
    assert not coarse.is_readable()


def test_nearest_neighbours_are_a_coarse_residual():
    r = np.arange(12).reshape(1, 1, 2, 2, 3)
    y = spread(r, CoarseResidual(2, 2, 1, 4))
    np.testing.assert_array_equal(y, r.repeat(2, axis=2).repeat(2, axis=3))


@pytest.mark.parametrize("coarse", CASES, ids=CoarseResidual.text)
def test_text_and_records_keep_it(coarse):
    assert coarse_residual_of(coarse.text()) == coarse
    epilogue = Epilogue(residual="before", coarse=coarse)
    assert from_json(Epilogue, to_json(epilogue)) == epilogue


def test_no_text_is_no_coarse_residual():
    assert coarse_residual_of("") is None
