"""What the chunks of a decode would take on our kernels, modelled."""

from __future__ import annotations

from collections.abc import Sequence

from nkisim.machine import TRN2, Machine
from trnconv.ask.policy import DIRECT, policy_of
from trnconv.ask.question import Question
from trnconv.integrations.vllm_omni_neuron.sites import SiteCall
from trnconv.runtime.pricing import price


def modelled_ns(
    calls: Sequence[SiteCall], *, machine: Machine = TRN2, accuracy: str = DIRECT
) -> list[float]:
    """Of each call, on a launch of the machine, by the closed form; equal ones are planned once."""
    priced: dict[Question, float] = {}
    for call in calls:
        question = _question(call, machine, accuracy)
        if question not in priced:
            priced[question] = price(question, beyond_hbm=True).ns
    return [priced[_question(call, machine, accuracy)] for call in calls]


def _question(call: SiteCall, machine: Machine, accuracy: str) -> Question:
    return Question(call.shape, machine, policy=policy_of(accuracy))
