"""Question: a convolution to be planned, with all that decides how. `best_plan` answers it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nkisim.machine import Machine
from trnconv.geometry import ConvShape, TransposedShape
from trnconv.plan.accuracy import DEFAULT_POLICY, DIRECT, Policy
from trnconv.plan.candidates import Request
from trnconv.plan.choose import DEFAULT_BUDGET, Priced, choose, request_for
from trnconv.plan.conv_plan import ConvPlan
from trnconv.plan.ends import PLAIN_END, End
from trnconv.plan.fast_candidates import FastRequest, PricedFast
from trnconv.plan.fast_choose import best_of, one_frame
from trnconv.plan.fast_legality import why_not
from trnconv.plan.fast_plan import DEPTH, HEIGHT, FastPlan
from trnconv.plan.tuned import tuned_plan

Shape = ConvShape | TransposedShape
Plan = ConvPlan | FastPlan
_LEAST_CHANNELS = 96  # with fewer, the transforms take longer than the multiplications they save


@dataclass(frozen=True)
class Question:
    """A convolution, how its input lies, how it ends, where it would run and what is accepted."""

    shape: Shape
    machine: Machine
    dtype: str = "bfloat16"
    pieces: tuple[int, ...] = ()
    end: End = PLAIN_END
    reproducible: bool = False
    budget: int = DEFAULT_BUDGET  # static instructions of a launch
    policy: Policy = DEFAULT_POLICY
    exact: bool = False  # an Inf or NaN of x stays with the outputs whose taps meet it

    def direct(self) -> Request:
        """For the planner of direct convolutions."""
        request = request_for(
            self.shape,
            self.machine,
            self.dtype,
            exact=self.exact,
            pieces=self.pieces,
            reproducible=self.reproducible,
        )
        return replace(request, end=self.end)

    def fast(self) -> FastRequest:
        """For the planner of fast ones."""
        assert isinstance(self.shape, ConvShape)
        return FastRequest(self.shape, self.machine, self.dtype, self.end, self.pieces)


def best_plan(question: Question) -> Priced | PricedFast:
    """The plan that was tuned for this very question, else what a search finds."""
    return tuned_plan(question) or searched_plan(question)


def searched_plan(question: Question) -> Priced | PricedFast:
    """The fastest plan within the budget that the policy allows, by the closed form."""
    if worth_a_search(question):
        return best_of(
            question.fast(), question.policy, question.budget, reproducible=question.reproducible
        ).taken
    return choose(question.direct(), question.budget).taken


def worth_a_search(question: Question) -> bool:
    """Whether fast forms are looked for at all; the same for any number of frames, if need be."""
    shape = question.shape
    if question.exact or question.policy.accuracy == DIRECT or isinstance(shape, TransposedShape):
        return False
    if min(shape.c_in, shape.c_out) < _LEAST_CHANNELS:
        return False
    if why_not(shape, DEPTH) and why_not(shape, HEIGHT):
        return False
    counted = one_frame(shape) if question.reproducible else shape
    return counted.macs() >= question.policy.least_macs
