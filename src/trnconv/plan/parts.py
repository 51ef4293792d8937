"""Plans for all parts of a convolution, however large it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from trnconv.errors import PlanError
from trnconv.geometry import ConvShape
from trnconv.plan.launches import Launch, halve_channels, launches

Planned = TypeVar("Planned")


def planned_parts(
    shape: ConvShape, plan: Callable[[ConvShape], Planned]
) -> Iterator[tuple[Launch, Planned]]:
    """The launches of a convolution and what `plan` makes of each; equal ones are planned once.

    Mostly it is one. There are more where offsets would not fit 32 bits, and where no program is
    short enough (`plan` raises PlanError): then output channels are halved until one is.
    """
    known: dict[ConvShape, Planned] = {}
    waiting = launches(shape)
    while waiting:
        part = waiting.pop(0)
        if part.shape not in known:
            try:
                known[part.shape] = plan(part.shape)
            except PlanError:
                waiting[:0] = halve_channels(part)
                continue
        yield part, known[part.shape]
