"""The command `trnconv`. One file a command; what a command runs is imported when it runs."""

from __future__ import annotations

import sys

import typer

from trnconv.cli import (
    bench,
    bringup,
    capacity,
    doctor,
    encode,
    explain,
    freeze,
    models,
    plan,
    report,
    time,
    trace,
    tune,
    verify,
)
from trnconv.cli.refusals import EXIT_CODES, REFUSED, in_words

_NAME = "trnconv"
app = typer.Typer(
    name=_NAME,
    help="Convolution for video models on AWS Trainium.",
    no_args_is_help=True,
    epilog=EXIT_CODES,
    pretty_exceptions_enable=False,
)
# In the order of the help: what to ask first comes first.
app.command()(models.models)
app.command()(plan.plan)
app.command()(explain.explain)
app.command()(time.time)
app.command()(trace.trace)
app.command()(report.report)
app.command()(verify.verify)
app.command()(bench.bench)
app.command()(tune.tune)
app.command()(freeze.freeze)
app.command()(encode.encode)
app.command()(capacity.capacity)
app.command()(doctor.doctor)
app.command()(bringup.bringup)


@app.callback()
def _commands() -> None:
    """Convolution for video models on AWS Trainium. Times of devices are modelled."""


def main() -> None:
    """Run a command. A refusal is said in words on stderr, with exit code 2 and no traceback."""
    from trnconv.errors import TrnconvError

    try:
        app(prog_name=_NAME)
    except TrnconvError as refusal:
        in_words(refusal)
        sys.exit(REFUSED)
