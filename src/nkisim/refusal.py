"""Refused functions: names of NKI that nkisim knows, with their parameters, and does not model.

A refused function is written as its signature and a docstring under `@refused(...)`. Calling it
raises UnsupportedError with its name; `refusal_of` tells it from an implemented one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, ParamSpec

from nkisim.errors import UnsupportedError

P = ParamSpec("P")


@dataclass(frozen=True)
class Refusal:
    """Why a function is refused, and what to do instead."""

    instruction: str  # as kernels write it: nl.divide, nisa.rng
    reason: str
    remedy: str

    def error(self) -> UnsupportedError:
        """What calling the function raises."""
        return UnsupportedError(
            "this function is not modelled",
            instruction=self.instruction,
            limit=self.reason,
            remedy=self.remedy,
        )


def refused(
    instruction: str, reason: str, remedy: str
) -> Callable[[Callable[P, None]], Callable[P, NoReturn]]:
    """Make a function of a signature alone one that raises UnsupportedError."""
    refusal = Refusal(instruction, reason, remedy)

    def decorate(signature: Callable[P, None]) -> Callable[P, NoReturn]:
        @functools.wraps(signature)
        def refuse(*_args: P.args, **_kwargs: P.kwargs) -> NoReturn:
            raise refusal.error()

        vars(refuse)["refusal"] = refusal
        return refuse

    return decorate


def refusal_of(value: Any) -> Refusal | None:
    """The refusal behind a function, or None for everything that works."""
    found = getattr(value, "refusal", None)
    return found if isinstance(found, Refusal) else None
