"""Plans for all parts of a convolution, however large it is."""

from __future__ import annotations

from nkisim.machine import Machine
from trnconv.errors import PlanError
from trnconv.geometry import ConvShape
from trnconv.plan.choose import DEFAULT_BUDGET, Choice, choose, request_for
from trnconv.plan.launches import Launch, halve_channels, launches


def choose_parts(
    shape: ConvShape, machine: Machine, dtype: str, budget: int = DEFAULT_BUDGET
) -> list[tuple[Launch, Choice]]:
    """The launches of a convolution and the plan of each; mostly one.

    More where offsets would not fit 32 bits, and where no program is short enough: then output
    channels are halved until one is.
    """
    known: dict[ConvShape, Choice] = {}
    found = []
    waiting = launches(shape)
    while waiting:
        part = waiting.pop(0)
        if part.shape not in known:
            try:
                known[part.shape] = choose(request_for(part.shape, machine, dtype), budget)
            except PlanError:
                waiting[:0] = halve_channels(part)
                continue
        found.append((part, known[part.shape]))
    return found
