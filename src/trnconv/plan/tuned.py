"""Which tuned plans are in use: the planner asks here before it searches.

They come from the file that `use_tuned` names, else from the one that TRNCONV_TUNED names, else
from the one that comes with the package (`data/tuned_<machine>.json`).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from trnconv.plan.choose import Priced
from trnconv.plan.fast_candidates import PricedFast
from trnconv.plan.tuned_file import TunedError, TunedFile, priced, read

if TYPE_CHECKING:
    from trnconv.plan.question import Question

ENVIRONMENT = "TRNCONV_TUNED"
_SHIPPED = Path(__file__).parent / "data"


class TunedWarning(UserWarning):
    """A file of tuned plans is left alone."""


def tuned_plan(question: Question) -> Priced | PricedFast | None:
    """The tuned plan for a question, with its closed-form cost; None if there is none.

    Reproducible plans are never tuned: which one is taken must not depend on sizes.
    """
    file = None if question.reproducible else active(question.machine.name)
    plan = None if file is None else file.plan_for(question)
    return None if plan is None else priced(plan)


@dataclass
class _Chosen:
    """The file that `use_tuned` named."""

    file: TunedFile | None = None


_chosen = _Chosen()


@contextmanager
def use_tuned(path: Path | None) -> Iterator[TunedFile | None]:
    """Plan with the tuned plans of a file, in all threads; None: as if nothing was named."""
    before, _chosen.file = _chosen.file, None if path is None else read(path)
    try:
        yield _chosen.file
    finally:
        _chosen.file = before


def active(machine: str) -> TunedFile | None:
    """The tuned plans in use for a machine."""
    if _chosen.file is not None:
        return _chosen.file if _chosen.file.machine == machine else None
    asked = os.environ.get(ENVIRONMENT)
    if asked:
        file = _read_or_warn(asked)
        return file if file and file.machine == machine else None
    return _shipped(machine)


@lru_cache(maxsize=8)
def _read_or_warn(asked: str) -> TunedFile | None:
    try:
        return read(Path(asked))
    except TunedError as error:
        warnings.warn(f"{ENVIRONMENT}: {error}", TunedWarning, stacklevel=2)
        return None


@lru_cache(maxsize=8)
def _shipped(machine: str) -> TunedFile | None:
    path = _SHIPPED / f"tuned_{machine}.json"
    if not path.is_file():
        return None
    try:
        return read(path)
    except TunedError as error:
        warnings.warn(str(error), TunedWarning, stacklevel=2)
        return None
