"""Which tuned plans are in use: the planner asks here before it searches.

They come from the file that `use_tuned` names, else from the one that TRNCONV_TUNED names.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from trnconv.algorithms.algorithm import Priced
from trnconv.planner.table import priced
from trnconv.planner.tuned_file import TunedError, TunedFile, read
from trnconv.problem.conv_problem import ConvProblem

ENVIRONMENT = "TRNCONV_TUNED"


class TunedWarning(UserWarning):
    """A file of tuned plans is left alone."""


def tuned_plan(problem: ConvProblem) -> Priced | None:
    """The tuned plan for a problem, with its cost-model cost; None if there is none.

    Reproducible plans are never tuned: which one is taken must not depend on sizes.
    """
    file = None if problem.reproducible else active(problem.machine.name)
    plan = None if file is None else file.plan_for(problem)
    return None if plan is None else priced(plan)


@dataclass
class _Chosen:
    """The file that `use_tuned` named."""

    file: TunedFile | None = None


_chosen = _Chosen()


@contextmanager
def use_tuned(path: Path | None) -> Iterator[TunedFile | None]:
    """Plan with the tuned plans of a file, in all threads; None: as if nothing was named."""
    with use_file(None if path is None else read(path)) as file:
        yield file


@contextmanager
def use_file(file: TunedFile | None) -> Iterator[TunedFile | None]:
    """The same with a file that was read."""
    before, _chosen.file = _chosen.file, file
    try:
        yield file
    finally:
        _chosen.file = before


def active(machine: str) -> TunedFile | None:
    """The tuned plans in use for a machine."""
    asked = os.environ.get(ENVIRONMENT)
    file = _chosen.file or (_read_or_warn(asked) if asked else None)
    return file if file and file.machine == machine else None


@lru_cache(maxsize=8)
def _read_or_warn(path: str) -> TunedFile | None:
    try:
        return read(Path(path))
    except TunedError as error:
        warnings.warn(f"{ENVIRONMENT}: {error}", TunedWarning, stacklevel=2)
        return None
