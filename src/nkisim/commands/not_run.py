"""Commands that found nothing to run: a wrong path, an argument nobody can read."""

from __future__ import annotations

from typing import NoReturn


class NotRunError(Exception):
    """What was asked, what there is, and what to write instead; no kernel has run."""


def not_run(what: str, limit: str, remedy: str) -> NoReturn:
    """Refuse a command in the form of nkisim's refusals."""
    raise NotRunError(f"{what}\n  limit:  {limit}\n  remedy: {remedy}")
