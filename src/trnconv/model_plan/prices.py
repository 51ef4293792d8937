"""Prices of convolutions, worked out once: in memory, and on disk if a cache is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import repeat
from math import inf
from typing import Any

from nkisim.machine import register
from trnconv.cache import Cache
from trnconv.errors import PlanError
from trnconv.planner.shipped_plans import (
    are_used,
    is_shipped,
    shipped_digest,
    shipped_plans_used,
)
from trnconv.planner.tuned_file import TunedFile
from trnconv.planner.tuned_plans import active, use_file
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.cores import cores_of
from trnconv.problem.launches import first_parts
from trnconv.records import RecordError, from_json, to_json
from trnconv.runtime.launch import with_joined_pieces
from trnconv.runtime.pricing import Price, price

_FEW = 8  # problems are worked out by the time that processes have started


@dataclass(frozen=True)
class Prices:
    """Answers to `runtime.pricing.price` that are remembered.

    `jobs` processes work out what is asked for together. They start by importing the program that
    asks, so a script that wants more than one does its work under `if __name__ == "__main__"`.
    """

    cache: Cache | None = None
    simulate: bool = False  # schedule every launch instead of using the planner's cost model
    watch: Callable[[int, int], None] | None = None  # hears how many are known, and of how many
    cores: int | None = None  # of a launch; None: as many as the machine's has
    jobs: int = 1
    _known: dict[ConvProblem, Price] = field(default_factory=dict, init=False)
    _awaited: set[ConvProblem] = field(default_factory=set, init=False)

    def of(self, problem: ConvProblem) -> Price:
        """What the convolution costs."""
        if not self._is_known(problem):
            priced = price(problem, simulate=self.simulate, cores=self.cores, beyond_hbm=True)
            self._keep(problem, priced)
        return self._known[problem]

    def ns_of(self, problem: ConvProblem) -> float:
        """Its time, ns; infinite if it has no plan."""
        try:
            return self.of(problem).ns
        except PlanError:
            return inf

    def prepare(self, problems: Sequence[ConvProblem]) -> None:
        """Work out what is not known yet, in `jobs` processes; large convolutions first.

        That a problem has no plan is said where it is asked for: `of` raises the error.
        """
        self._awaited.update(problems)
        missing = [
            problem
            for problem in dict.fromkeys(problems)
            if not self._is_known(problem) and not self._is_shipped(problem)
        ]
        if self.jobs == 1 or len(missing) < _FEW:
            return
        from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 (only if processes start)
        from multiprocessing import get_context  # noqa: PLC0415

        missing.sort(key=lambda problem: problem.shape.macs(), reverse=True)
        tuned = [active(problem.machine.name) for problem in missing]
        with ProcessPoolExecutor(self.jobs, mp_context=get_context("spawn")) as pool:
            how = (repeat(self.simulate), repeat(self.cores), repeat(are_used()))
            priced = pool.map(_price_with, tuned, missing, *how)
            for problem, worked_out in zip(missing, priced, strict=True):
                if worked_out is not None:
                    self._keep(problem, worked_out)

    def _is_shipped(self, problem: ConvProblem) -> bool:
        """Whether plans of its launches came with the package: pricing takes milliseconds."""
        if self.simulate:
            return False
        cores, joined = cores_of(problem.machine, self.cores), with_joined_pieces(problem)
        try:
            parts = first_parts(joined)
        except PlanError:
            return False
        return all(is_shipped(replace(joined, shape=part.shape), cores) for part in parts)

    def _is_known(self, problem: ConvProblem) -> bool:
        """Whether it is in memory, by now: what is on disk is read."""
        if problem not in self._known and self.cache is not None:
            answer = self.cache.get(self._asked(problem))
            if answer is not None:
                try:
                    self._remember(problem, from_json(Price, answer))
                except RecordError:
                    self.cache.distrust(self._asked(problem))
        return problem in self._known

    def _keep(self, problem: ConvProblem, priced: Price) -> None:
        """Remember it; on disk if it was searched for, which takes a hundred times as long."""
        if self.cache is not None and (self.simulate or not priced.shipped):
            self.cache.put(self._asked(problem), to_json(priced))
        self._remember(problem, priced)

    def _remember(self, problem: ConvProblem, priced: Price) -> None:
        self._known[problem] = priced
        self._awaited.add(problem)
        if self.watch is not None:
            self.watch(len(self._known), len(self._awaited))

    def _asked(self, problem: ConvProblem) -> dict[str, Any]:
        file, cores = active(problem.machine.name), cores_of(problem.machine, self.cores)
        surroundings = {
            "machine": problem.machine.name,
            "simulate": self.simulate,
            "cores": cores,
            "tuned": file.digest if file else "",
            "shipped": shipped_digest(problem.machine.name, cores),
        }
        return {**surroundings, **to_json(problem, but=("machine",))}


def _price_with(
    tuned: TunedFile | None,
    problem: ConvProblem,
    simulate: bool,  # noqa: FBT001 (an executor's map has no keywords)
    cores: int,
    shipped: bool,  # noqa: FBT001
) -> Price | None:
    """A price of another process, with the plans and machines of this one; None: no plan."""
    register(problem.machine)
    with use_file(tuned), shipped_plans_used(wanted=shipped), suppress(PlanError):
        return price(problem, simulate=simulate, cores=cores, beyond_hbm=True)
    return None
