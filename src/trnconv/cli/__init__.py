"""The command `trnconv`. One file a command; what a command runs is imported when it runs."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from trnconv.cli import (
    bench,
    bringup,
    capacity,
    compare,
    doctor,
    encode,
    explain,
    freeze,
    layers,
    models,
    plan,
    report,
    time,
    trace,
    tune,
    verify,
)
from trnconv.cli.flags import PlainCommand, PlainGroup
from trnconv.cli.refusals import EXIT_CODES, FAILED, REFUSED, in_words

_NAME = "trnconv"
app = typer.Typer(
    name=_NAME,
    cls=PlainGroup,
    help="Convolution for video models on AWS Trainium.",
    no_args_is_help=True,
    epilog=EXIT_CODES,
    pretty_exceptions_enable=False,
)
# In the order of the help: what to ask first comes first.
for _command in (
    models.models,
    layers.layers,
    plan.plan,
    explain.explain,
    time.time,
    trace.trace,
    report.report,
    compare.compare,
    verify.verify,
    bench.bench,
    tune.tune,
    freeze.freeze,
    encode.encode,
    capacity.capacity,
    doctor.doctor,
    bringup.bringup,
):
    app.command(cls=PlainCommand)(_command)


def _version(*, asked: bool) -> None:
    if not asked:
        return
    from nkisim.version import __version__

    typer.echo(f"{_NAME} {__version__}")
    raise typer.Exit


@app.callback()
def _commands(
    *,
    _: Annotated[
        bool, typer.Option("--version", help="The version.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Convolution for video models on AWS Trainium. Times of devices are modelled."""


def main() -> None:
    """Run a command. A refusal is said in words on stderr, with exit code 2 and no traceback."""
    from trnconv.errors import TrnconvError

    try:
        app(prog_name=_NAME)
    except TrnconvError as refusal:
        in_words(refusal)
        sys.exit(REFUSED)
    except OSError as error:  # of stdout above all: a full disk; a closed pipe is Typer's business
        _leave_stdout()
        in_words(f"{error.strerror}{f': {error.filename}' if error.filename else ''}.")
        sys.exit(FAILED)


def _leave_stdout() -> None:
    """What is buffered cannot be written: Python would try again at its end, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
