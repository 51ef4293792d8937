"""What a user reads when a command cannot do what was asked."""

from __future__ import annotations

from rich.console import Console

REFUSED = 2  # as Typer exits when it does not understand an option


def in_words(refusal: Exception) -> None:
    """The message on stderr: what was asked, the limit, and what to do instead."""
    Console(stderr=True, soft_wrap=True).print(f"trnconv: {refusal}", markup=False, highlight=False)
