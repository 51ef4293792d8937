"""Prices of convolutions, worked out once: in memory, and on disk if a cache is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from trnconv.ask.cores import cores_of
from trnconv.ask.question import Question
from trnconv.cache import Cache
from trnconv.planner.tuned import active
from trnconv.records import RecordError, from_json, to_json
from trnconv.runtime.pricing import Price, price


@dataclass(frozen=True)
class Prices:
    """Answers to `runtime.pricing.price` that are remembered."""

    cache: Cache | None = None
    simulate: bool = False  # schedule every launch instead of using the planner's closed form
    watch: Callable[[int], None] | None = None  # called with how many were worked out so far
    cores: int | None = None  # of a launch; None: as many as the machine's has
    _known: dict[Question, Price] = field(default_factory=dict, init=False)

    def of(self, question: Question) -> Price:
        """What the convolution costs."""
        if question not in self._known:
            self._known[question] = self._kept(question)
            if self.watch is not None:
                self.watch(len(self._known))
        return self._known[question]

    def _kept(self, question: Question) -> Price:
        if self.cache is None:
            return self._price(question)
        asked = self._asked(question)
        answer = self.cache.get(asked)
        if answer is not None:
            try:
                return from_json(Price, answer)
            except RecordError:
                self.cache.distrust(asked)
        found = self._price(question)
        self.cache.put(asked, to_json(found))
        return found

    def _price(self, question: Question) -> Price:
        return price(question, simulate=self.simulate, cores=self.cores, beyond_hbm=True)

    def _asked(self, question: Question) -> dict[str, Any]:
        file = active(question.machine.name)
        surroundings = {
            "machine": question.machine.name,
            "simulate": self.simulate,
            "cores": cores_of(question.machine, self.cores),
            "tuned": file.digest if file else "",
        }
        return {**surroundings, **to_json(question, but=("machine",))}
