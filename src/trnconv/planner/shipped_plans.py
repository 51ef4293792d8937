"""Which plans come with the package: the planner asks here before it searches.

They are of the convolutions of the registry's models at their stored sizes. `trnconv tune
--registry` makes them. Each is checked again when it is asked for, and priced with the constants of
today; plans that were tuned with other constants are left alone, and searched for.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from importlib import resources

from trnconv.algorithms.algorithm import Plan
from trnconv.errors import PlanError
from trnconv.planner.shipped_file import (
    REFUSED,
    Answer,
    Entry,
    ShippedError,
    ShippedFile,
    answer_of,
    is_short,
    parse,
    plans_of,
    stored_key,
)
from trnconv.problem.conv_problem import ConvProblem, without_norm
from trnconv.problem.limits import DEFAULT_BUDGET
from trnconv.problem.policy import BF16, FAST, FASTEST

DATA = "data"  # folder of this package
_NARROWER = {FAST: (BF16,), FASTEST: (FAST, BF16)}


class ShippedWarning(UserWarning):
    """A shipped plan is left alone, and searched for."""


@dataclass
class _Use:
    """Whether shipped plans are asked for at all, and those that stand for the package's."""

    wanted: bool = True
    made: ShippedFile | None = None


_use = _Use()


@contextmanager
def shipped_plans_used(*, wanted: bool) -> Iterator[None]:
    """Plan with shipped plans, or with searches alone, in all threads."""
    before, _use.wanted = _use.wanted, wanted
    try:
        yield
    finally:
        _use.wanted = before


@contextmanager
def plans_in_making(file: ShippedFile) -> Iterator[None]:
    """Plan with a file in place of all that is shipped for its launch, in all threads."""
    before, _use.made = _use.made, file
    try:
        yield
    finally:
        _use.made = before


def are_used() -> bool:
    """Whether the planner asks for shipped plans."""
    return _use.wanted


@dataclass(frozen=True)
class ShippedSet:
    """All plans for launches of a machine."""

    files: tuple[ShippedFile, ...]
    entries: Mapping[str, Entry]
    digest: str  # of all files

    @cached_property
    def constants(self) -> frozenset[str]:
        """Those that its plans were tuned with."""
        return frozenset(file.stamp["constants"] for file in self.files)


def shipped_answer(problem: ConvProblem, cores: int) -> Answer | None:
    """The shipped plans of a launch, one for each core; None: search.

    A PlanError is the stored answer where no plan is short enough. Reproducible plans are never
    shipped: which one is taken must not depend on sizes.
    """
    entry = _entry(problem, cores)
    if entry is None:
        return None
    try:
        answer = answer_of(problem, entry)
    except ShippedError as error:
        warnings.warn(f"{error} It is searched for.", ShippedWarning, stacklevel=2)
        return None
    return answer if is_short(answer, problem) else None


def narrower_answer(problem: ConvProblem, cores: int) -> Answer | None:
    """The shipped plans for a narrower accuracy than is asked for; None: there are none.

    What the narrower limit allows, the wider one does too. Shipped plans were looked for longer.
    """
    for accuracy in _NARROWER.get(problem.policy.accuracy, ()):
        narrower = replace(problem, policy=replace(problem.policy, accuracy=accuracy))
        try:
            answer = shipped_answer(narrower, cores)
        except PlanError:
            continue
        if answer is not None:
            return answer
    return None


def is_shipped(problem: ConvProblem, cores: int) -> bool:
    """Whether an answer is stored for this very problem; it may be that no plan is short."""
    return _entry(problem, cores) is not None


def shipped_plans_of(problem: ConvProblem, cores: int) -> tuple[Plan, ...]:
    """The plans that are stored for a problem, as they are; empty if there are none."""
    entry = _entry(problem, cores)
    return () if entry is None or REFUSED in entry else plans_of(problem, entry)


def shipped_digest(machine: str, cores: int) -> str:
    """What shipped plans prices of a machine follow from; empty: none."""
    found = shipped_set(machine, cores)
    return found.digest if _use.wanted and found.entries else ""


def _entry(problem: ConvProblem, cores: int) -> Entry | None:
    machine = problem.machine
    if not _use.wanted or problem.reproducible or problem.budget > DEFAULT_BUDGET:
        return None
    shipped = shipped_set(machine.name, cores)
    if not shipped.entries or shipped.constants != {machine.constants}:
        return None
    key = stored_key(problem, shipped.entries)
    return _without_its_norm(problem, shipped) if key is None else shipped.entries[key]


def _without_its_norm(problem: ConvProblem, shipped: ShippedSet) -> Entry | None:
    """What is stored of a convolution without the norm of its outputs, if it serves with it."""
    if problem.epilogue.norm is None:
        return None
    key = stored_key(without_norm(problem), shipped.entries)
    if key is None:
        return None
    entry = shipped.entries[key]
    try:
        return entry if is_short(answer_of(problem, entry), problem) else None
    except (ShippedError, PlanError):
        return None


def shipped_set(machine: str, cores: int) -> ShippedSet:
    """All plans of a machine's launches."""
    made = _use.made
    if made is not None and (made.machine, made.cores) == (machine, cores):
        return ShippedSet((made,), made.plans, "")
    return _read_set(machine, cores)


@lru_cache(maxsize=16)
def _read_set(machine: str, cores: int) -> ShippedSet:
    """Those of the package, read once."""
    texts = _texts(f"{machine}_{cores}_")
    digest = hashlib.blake2b("".join(texts).encode(), digest_size=16).hexdigest()
    files = tuple(parse(text, f"shipped plans of {machine}") for text in texts)
    entries = {key: entry for file in files for key, entry in file.plans.items()}
    return ShippedSet(files, entries, digest)


def _texts(first: str) -> list[str]:
    """The files whose names begin so, in the order of their names."""
    folder = resources.files("trnconv.planner") / DATA
    named = {path.name: path for path in folder.iterdir() if path.name.startswith(first)}
    whole = sorted(name for name in named if name.endswith(".json"))
    return [named[name].read_text(encoding="utf-8") for name in whole]
