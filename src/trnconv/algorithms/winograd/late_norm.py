"""The order of a norm of outputs: four stages, spread over the pauses of the next unit.

Squares, their sums over channels, products with the root, and z. Each stage is a pause behind the
one before it, so that no engine waits for another.
"""

from __future__ import annotations

from typing import Protocol

from trnconv._nki import nl

STAGES = 4  # squares, sums, products, z


class NormExecutor(Protocol):
    """The norm of a unit's outputs, step by step of its positions."""

    steps: int
    room: tuple[int, int, int]  # for steps that the next stage has not read

    def square(self, step: int) -> None:
        """Outputs."""

    def sum_up(self, step: int) -> None:
        """Squares, over channels."""

    def multiply(self, step: int) -> None:
        """Outputs by the root of sums."""

    def finish(self, step: int) -> None:
        """Scales, shifts and the activation."""

    def store(self) -> None:
        """All of z."""


class NormSteps(nl.NKIObject):
    """The norm of one unit, and how far it has come."""

    def __init__(self, norm: NormExecutor) -> None:
        self.norm = norm
        self.steps = norm.steps
        self.done = [0, 0, 0, 0]  # steps of each stage

    def ready(self, stage: int) -> int:
        """Steps of a stage whose inputs the one before it has made."""
        return self.steps if stage == 0 else self.done[stage - 1]

    def advance(self, stage: int) -> None:
        """One more step of a stage, after what makes room for it in later ones."""
        for back in range(STAGES - 1 - stage):
            later = STAGES - 1 - back
            if self.done[later - 1] - self.done[later] == self.norm.room[later - 1]:
                self.run(later)
        self.run(stage)

    def run(self, stage: int) -> None:
        """One more step of a stage."""
        step = self.done[stage]
        if stage == 0:
            self.norm.square(step)
        elif stage == 1:
            self.norm.sum_up(step)
        elif stage == 2:
            self.norm.multiply(step)
        else:
            self.norm.finish(step)
        self.done[stage] += 1


class LateNorm(nl.NKIObject):
    """The norm of the unit before, if outputs are normed and there is one."""

    def __init__(self) -> None:
        self.steps: NormSteps | None = None

    def follow(self, norm: NormExecutor | None) -> None:
        """A unit is computed: what is left of the one before, and then this one."""
        self.complete()
        if norm != None:
            self.steps = NormSteps(norm)

    def share(self, pauses: int, all_pauses: int) -> None:
        """So many of all pauses have passed: later stages first, for what is ready by now."""
        steps = self.steps
        if steps == None:
            return
        span = max(1, all_pauses - STAGES)
        for back in range(STAGES):
            stage = STAGES - 1 - back
            passed = steps.steps * max(0, pauses - stage) // span
            until = min(passed, steps.ready(stage))
            while steps.done[stage] < until:
                steps.advance(stage)
        if steps.done[STAGES - 1] == steps.steps:
            self.complete()

    def complete(self) -> None:
        """All of it, a step of each stage in turn, and to z."""
        steps = self.steps
        if steps == None:
            return
        while steps.done[STAGES - 1] < steps.steps:
            for back in range(STAGES):
                stage = STAGES - 1 - back
                if steps.done[stage] < steps.ready(stage):
                    steps.advance(stage)
        steps.norm.store()
        self.steps = None
