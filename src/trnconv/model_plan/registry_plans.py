"""Plans of the registry's models as they are shipped: made model by model, and gone on with.

A file under way lies beside the one it will replace, with the ending `.part`; whoever makes plans
again with the same sources goes on with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nkisim.machine import find_machine
from trnconv import cache
from trnconv.ask.launches import planned_parts
from trnconv.ask.limits import DEFAULT_BUDGET
from trnconv.ask.policy import policy_of
from trnconv.ask.question import Question, without_norm
from trnconv.errors import PlanError
from trnconv.model_plan.observations import planned_sizes
from trnconv.models import ModelEntry
from trnconv.observed import shipped
from trnconv.planner.shipped_file import (
    REFUSED,
    Entry,
    ShippedError,
    ShippedFile,
    answer_of,
    digest_of,
    entry_of,
    parse,
    refusal_of,
)
from trnconv.runtime.launch import with_joined_pieces
from trnconv.runtime.tuning import Effort, TunedLaunch, better_launch, tuned_launch

SHIPPED_LAUNCHES = (("trn2", 2), ("trn2", 1), ("trn3", 2))  # machine and cores
_PART = ".part"
_SAVED_EVERY = 10  # convolutions

Watch = Callable[[int, int], None]  # convolutions done, of how many


@dataclass(frozen=True)
class Making:
    """A file to be made: whose plans, and how much is tried for each."""

    entry: ModelEntry
    machine: str
    cores: int
    accuracy: str
    effort: Effort
    folder: Path

    def questions(self) -> list[Question]:
        """The convolutions of its stored sizes, encoded and decoded; equal ones once.

        Those with a norm at their end are planned without it, too: the norm may be faster apart.
        """
        target, policy = find_machine(self.machine), policy_of(self.accuracy)
        asked = (
            with_joined_pieces(question)
            for size in planned_sizes(self.entry)
            for phase in self.entry.phases
            if (seen := shipped(self.entry, size, phase)) is not None
            for work, _ in seen.works
            for whole in [work.question(target, policy=policy)]
            for question in (without_norm(whole), whole)
        )
        return [question for question in dict.fromkeys(asked) if not question.reproducible]

    def file(self, plans: dict[str, Entry]) -> ShippedFile:
        """These plans, with the stamp of today."""
        return ShippedFile(self.machine, self.cores, self.entry.name, cache.stamp(), plans)

    @property
    def path(self) -> Path:
        """Where it will lie."""
        return self.folder / self.file({}).name


def make_plans(making: Making, watch: Watch) -> ShippedFile:
    """Make a file, or what is missing of it, and put it in place whole."""
    plans, own = _begun(making)
    questions = making.questions()
    part = making.path.with_suffix(_PART)
    for done, question in enumerate(questions, 1):
        _plan_parts(question, making, plans, own)
        watch(done, len(questions))
        if done % _SAVED_EVERY == 0 or done == len(questions):
            file = making.file({key: plans[key] for key in own})
            part.write_text(file.text(), encoding="utf-8")
    part.replace(making.path)
    return file


def _begun(making: Making) -> tuple[dict[str, Entry], set[str]]:
    """What was made before with the same constants, and which are this model's.

    Other models may have the same convolutions, and a file may have plans of other accuracies. Of
    other sources' plans those are kept that are legal with today's; remove a file to search anew.
    """
    plans: dict[str, Entry] = {}
    own: set[str] = set()
    named = f"{making.machine}_{making.cores}_*"
    for path in sorted(making.folder.glob(named)):
        try:
            file = parse(path.read_text(encoding="utf-8"), str(path))
        except ShippedError:
            if path.suffix != _PART:
                raise
            continue  # cut off while it was written: it is made anew
        if file.stamp["constants"] == cache.stamp()["constants"]:
            plans.update(file.plans)
            own |= set(file.plans) if file.model == making.entry.name else set()
    return plans, own


def _plan_parts(question: Question, making: Making, plans: dict[str, Entry], own: set[str]) -> None:
    """Store the plans of all its launches; of a norm that has none, that it is done apart."""
    try:
        list(planned_parts(question, lambda asked: _planned(asked, making, plans, own)))
    except PlanError:
        if question.end.norm is None:
            raise


def _planned(question: Question, making: Making, plans: dict[str, Entry], own: set[str]) -> None:
    """Store the plans of a launch, if they are new or are tried harder than before."""
    if question.budget > DEFAULT_BUDGET:  # such plans are not shipped; searching shows there is one
        tuned_launch(question, making.cores, Effort(1))
        return
    key = digest_of(question)
    before = plans.get(key)
    own.add(key)
    if before and REFUSED in before:
        raise PlanError(before[REFUSED])
    try:
        launch = _new_launch(question, before, making)
    except PlanError as error:
        plans[key] = refusal_of(str(error))
        raise
    if launch is not None:
        plans[key] = entry_of(question, launch.plans, launch.tried)


def _new_launch(question: Question, before: Entry | None, making: Making) -> TunedLaunch | None:
    """In place of none, of one that was tried less hard, or is illegal by now; None: it stays."""
    try:
        taken = None if before is None else answer_of(question, before)
    except ShippedError:
        taken = None
    if before is None or taken is None:
        return tuned_launch(question, making.cores, making.effort)
    enough = before["tried"] >= making.effort.candidates or making.effort.candidates == 1
    return None if enough else better_launch(question, taken, making.effort)
