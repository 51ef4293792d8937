"""Strided copies make the packed image of every plan: nothing is missing, nothing is doubled."""

import numpy as np
import pytest

from nkisim.machine import TRN2
from trnconv.export.filter_copies import filter_copies
from trnconv.geometry import ConvShape
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.policy import ALWAYS_DIRECT
from trnconv.runtime.launch import prepare
from trnconv.runtime.plans import plans_for

pytestmark = pytest.mark.integrations
SAME = {"pad_before": (0, 1, 1), "pad_after": (0, 1, 1)}
SHAPES = [
    ConvShape(1, 96, 96, (6, 12, 40), (3, 3, 3), **SAME),
    ConvShape(1, 96, 3, (6, 12, 40), (3, 3, 3), **SAME),
    ConvShape(1, 16, 40, (3, 9, 10), (3, 3, 3), **SAME),
    ConvShape(1, 200, 150, (1, 6, 8), (1, 3, 3), stride=(1, 2, 2)),
    ConvShape(1, 12, 8, (1, 6, 8), (1, 3, 3), groups=4, **SAME),
    ConvShape(1, 48, 24, (1, 8, 10), (1, 3, 3), upsample=(1, 2, 2), **SAME),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_copies_make_the_image(shape):
    problem = ConvProblem(shape, TRN2, policy=ALWAYS_DIRECT)
    prepared = prepare(plans_for(problem))
    for lowered in prepared.lowered:
        source = prepared.algorithm.sources(lowered)[0]
        image, writes = (np.zeros_like(source.numbers) for _ in range(2))
        copies = filter_copies(source)
        for line, lines, column, columns, apart, first, line_step, step in copies:
            for i in range(lines):
                for j in range(columns):
                    place = (line + i, column + j * apart)
                    image[place] = first + i * line_step + j * step + 1
                    writes[place] += 1
        assert (image == source.numbers).all()
        assert (writes == (source.numbers > 0)).all()
        assert source.numbers.max() <= np.prod(source.filters)
        assert len(copies) < source.numbers.shape[1]  # fewer than columns
