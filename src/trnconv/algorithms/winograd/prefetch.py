"""What is done in the pauses between chains: transforms of the next unit, the norm of the last."""

from __future__ import annotations

from trnconv._nki import nl
from trnconv.algorithms.winograd.executors import BodyExecutor
from trnconv.algorithms.winograd.prepare_steps import PrepareSteps, do_step

LAST_PAUSES = 2  # of a unit, in which nothing is prepared
EARLIER = 2  # times: steps of the GpSimd engine are done in the first half of the others' pauses


class Prefetch(nl.NKIObject):
    """Steps that prepare the next unit, done in the pauses that chains leave the Vector engine.

    They end before the last of `chains`, so that the next unit need not wait. Those of the GpSimd
    engine are issued earlier than those that read what they make, if their inputs are there.

    Engines work in order: a step that waits for its inputs keeps what chains need waiting, too.
    Where the Scalar engine has to scale inputs first, frame by frame, a plan may leave out some
    pauses at the beginning (`late_pauses`).
    """

    def __init__(self, body: BodyExecutor, works: PrepareSteps, chains: int) -> None:
        self.body = body
        self.works = works
        self.pauses = 0
        self.all_pauses = max(1, chains * body.recipe.outputs - LAST_PAUSES)
        self.done = 0
        self.early_done = 0

    def pause(self) -> None:
        """A share of the steps, and of the norm of the unit before."""
        recipe = self.body.recipe
        self.pauses += 1
        early, others = len(self.works.early), len(self.works.others)
        if recipe.steps_ahead:
            self.do_early(min(early, EARLIER * early * self.pauses // self.all_pauses))
        late = min(recipe.late_pauses, self.all_pauses - 1)
        until = min(others, others * max(0, self.pauses - late) // (self.all_pauses - late))
        while self.done < until:
            work = self.works.others[self.done]
            self.do_early(work.after)
            do_step(self.body, work)
            self.done += 1
        self.body.late.share(self.pauses, self.all_pauses)

    def complete(self) -> None:
        """All steps, for a unit that has no chains."""
        self.all_pauses = 1
        self.pause()

    def do_early(self, until: int) -> None:
        """So many early steps, with those that are done."""
        while self.early_done < until:
            do_step(self.body, self.works.early[self.early_done])
            self.early_done += 1
