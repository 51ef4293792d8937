"""A launch of a kernel between convolutions: on one core or on two, in nkisim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import nkisim
from nkisim import Kernel, Run
from nkisim.machine import Machine, Reading
from nkisim.timing import Timeline, schedule_launch
from trnconv.algorithms.recipe_parts import RecipePair


@dataclass(frozen=True)
class FusedOpLaunch:
    """A kernel, and what it is called with behind its tensors: packed arrays and recipes."""

    kernel: Callable[..., Any]
    arguments: tuple[Any, ...]
    machine: Machine
    cores: int

    def run(self, *tensors: Any, **options: Any) -> Run:
        """In nkisim, on logical cores of as many; `options` are nkisim.run's.

        Tensors are arrays, or specs in a run without values.
        """
        return nkisim.run(
            Kernel(self.kernel)[self.cores],
            *tensors,
            *self.arguments,
            machine=self.machine,
            lnc=self.cores,
            **options,
        )

    def time(self, *tensors: Any, reading: Reading = Reading.default) -> Timeline:
        """When its instructions would run: the core that ends last."""
        run = self.run(*tensors, values=False)
        timelines = schedule_launch(run.traces, run.machine, reading, memories=run.memories)
        return max(timelines, key=lambda timeline: timeline.makespan_ns)


def launch_on(
    machine: Machine,
    kernels: tuple[Callable[..., Any], Callable[..., Any]],
    packed: tuple[Any, ...],
    recipes: Sequence[Any],
) -> FusedOpLaunch:
    """The kernel for one core, or that for two, with a recipe for each core."""
    if len(recipes) == 1:
        return FusedOpLaunch(kernels[0], (*packed, recipes[0]), machine, 1)
    first, second = recipes
    return FusedOpLaunch(kernels[1], (*packed, RecipePair((first, second))), machine, 2)
