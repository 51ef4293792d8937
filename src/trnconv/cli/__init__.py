"""The command `trnconv`. One file a command; what a command runs is imported when it runs."""

from __future__ import annotations

import sys

import typer

from trnconv.cli import capacity, encode
from trnconv.cli.refusals import REFUSED, in_words

app = typer.Typer(
    name="trnconv",
    help="Convolution for video models on AWS Trainium.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(encode.encode)
app.command()(capacity.capacity)


@app.callback()
def _commands() -> None:
    """Convolution for video models on AWS Trainium. Times of devices are modelled."""


def main() -> None:
    """Run a command. A refusal is said in words on stderr, with exit code 2 and no traceback."""
    from trnconv.errors import TrnconvError

    try:
        app()
    except TrnconvError as refusal:
        in_words(refusal)
        sys.exit(REFUSED)
