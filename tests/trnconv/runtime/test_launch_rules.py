"""Launches under device rules: calls break none, on logical cores of as many as they have."""

from dataclasses import replace

import numpy as np
import pytest

import nkisim
from conv_arrays import integer_arrays
from trnconv.geometry import conv_shape
from trnconv.runtime import LaunchOptions
from trnconv.runtime.convolve import convolve_shape, plan_for
from trnconv.runtime.depthwise import depthwise

SHAPE = conv_shape((1, 40, 4, 40, 20), (24, 40, 3, 3, 3), padding=(0, 1, 1))


def convolved(machine="trn2", *, cores=1, plans=None):
    """The runs of a small convolution."""
    x, w, bias = integer_arrays(SHAPE, "bfloat16")
    launch = LaunchOptions(machine, cores=cores, plans=plans)
    return convolve_shape((x,), w, bias, SHAPE, launch).runs


def in_loops(cores):
    """Plans as loops over rows."""
    plans = plan_for(SHAPE, "bfloat16", LaunchOptions("trn2", cores=cores))
    loop = {"looped": True, "lead": (), "ahead": False}
    return tuple(replace(plan, rows=plan.row_multiple, **loop) for plan in plans)


def summed():
    x, w = np.ones((1, 16, 4, 6, 8), np.float32), np.ones((16, 1, 3, 3, 3), np.float32)
    return [depthwise(x, w, np.ones(16, np.float32), machine="trn1", engines="vector").run]


CALLS = {
    "a loop on one core": lambda: convolved(plans=in_loops(1)),
    "trn1": lambda: convolved("trn1"),
    "two cores": lambda: convolved(cores=2),
    "a loop on two cores": lambda: convolved(cores=2, plans=in_loops(2)),
    "depthwise on trn1": summed,
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_breaks_no_rule(name):
    assert [str(rule) for run in CALLS[name]() for rule in run.rules] == []


def test_programs_with_other_loops_are_refused():
    """Plans by hand: one core has three times the rows of the other."""
    (plan,) = in_loops(1)
    pair = tuple(replace(plan, rows_of=rows) for rows in ((0, 30), (30, 40)))
    with pytest.raises(nkisim.DeviceRuleError, match="programs-differ"):
        convolved(cores=2, plans=pair)
