"""What a user reads when a command cannot do what was asked, and the exit codes."""

from __future__ import annotations

FAILED = 1  # a check did not pass, or the system refused a file
REFUSED = 2  # as Typer exits when it does not understand an option
EXIT_CODES = (
    "Exit codes: 0 success, 1 a check failed or a file could not be used, 2 invalid request."
)


def print_refusal(refusal: Exception | str) -> None:
    """The message on stderr: what was asked, the limit, and what to do instead."""
    from rich.console import Console

    from trnconv.cli.output import printable

    shown = "\n".join(map(printable, str(refusal).split("\n")))  # names of files may be in it
    Console(stderr=True, soft_wrap=True).print(f"trnconv: {shown}", markup=False, highlight=False)
