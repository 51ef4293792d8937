"""The command `trnconv`. One file a command; what a command runs is imported when it runs."""

from __future__ import annotations

import gc
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
    export,
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
from trnconv.cli.refusals import EXIT_CODES, FAILED, REFUSED, print_refusal

_NAME = "trnconv"
# In the order of the help: what to ask first comes first.
_COMMANDS = (
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
    export.export,
    encode.encode,
    capacity.capacity,
    doctor.doctor,
    bringup.bringup,
)
_WIDEST = 100  # characters of a line of help
_FEWER_COLLECTIONS = 50_000  # objects; imports make many, and next to no garbage


def _version(*, wanted: bool) -> None:
    if not wanted:
        return
    from nkisim.version import __version__

    typer.echo(f"{_NAME} {__version__}")
    raise typer.Exit


def _options(
    *,
    _: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", is_eager=True, callback=_version
        ),
    ] = False,
) -> None:
    """Convolution for video models on AWS Trainium. Times of devices are modelled."""


def application(*names: str) -> typer.Typer:
    """The command line with the commands of these names, or with all of them."""
    made = typer.Typer(
        name=_NAME,
        cls=PlainGroup,
        no_args_is_help=True,
        epilog=EXIT_CODES,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # Rich's help takes longer to load than all the rest of `--help`
        context_settings={"max_content_width": _WIDEST},
    )
    made.callback()(_options)
    for command in _COMMANDS:
        if not names or command.__name__ in names:
            first_line = (command.__doc__ or "").partition("\n")[0]
            made.command(cls=PlainCommand, short_help=first_line)(command)
    return made


app = application()


def main() -> None:
    """Run a command. A refusal is said in words on stderr, with exit code 2 and no traceback."""
    from trnconv.errors import TrnconvError

    gc.set_threshold(_FEWER_COLLECTIONS)
    # Typer builds the options of all commands that it has: for a known command, only its own.
    commands = [command.__name__ for command in _COMMANDS if sys.argv[1:2] == [command.__name__]]
    try:
        try:
            application(*commands)(prog_name=_NAME)
        finally:
            sys.stdout.flush()  # here, where what cannot be written is still said in words
    except TrnconvError as refusal:
        print_refusal(refusal)
        sys.exit(REFUSED)
    except OSError as error:  # of stdout above all: a full disk
        _leave_stdout()
        if not isinstance(error, BrokenPipeError):  # whoever reads has enough: as Typer sees it
            print_refusal(f"{error.strerror}{f': {error.filename}' if error.filename else ''}.")
        sys.exit(FAILED)


def _leave_stdout() -> None:
    """What is buffered cannot be written: Python would try again at its end, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
