"""Plans of the direct algorithm alone, as the planner ranks them."""

from nkisim.machine import TRN2
from trnconv.planner.best import choose, only
from trnconv.problem.conv_problem import ConvProblem


def direct_plans(shape, machine=TRN2, dtype="bfloat16", **asked):
    """All that are legal, priced, the fastest first; PlanError if there is none."""
    (offer,) = choose(only(ConvProblem(shape, machine, dtype, **asked), "direct")).offers
    return offer.plans


def direct_plan(shape, machine=TRN2, dtype="bfloat16", **asked):
    """The one taken."""
    return direct_plans(shape, machine, dtype, **asked)[0].plan
