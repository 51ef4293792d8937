"""`python -m benchmarks`: one command for each module that `_COMMANDS` lists.

Every time printed is modelled, but for those of `corpus`, `frontend`, `overhead` and `planning`,
which are of this machine's CPU, as a column of `audio` is; `trace-models` prints none, it writes
what models do, and `latents` and `mx` print errors.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks import (
    audio,
    chunk,
    corpus,
    decode,
    errors,
    family,
    fast,
    forward,
    frontend,
    integrations,
    latents,
    model,
    models,
    mx_errors,
    networks,
    overhead,
    planning,
    plans,
    price,
    scaling,
    shipped,
    trace_models,
    training,
)
from trnconv.errors import TrnconvError

_COMMANDS = {
    "forward": forward,
    "plans": plans,
    "shipped": shipped,
    "price": price,
    "model": model,
    "models": models,
    "networks": networks,
    "audio": audio,
    "chunk": chunk,
    "corpus": corpus,
    "decode": decode,
    "errors": errors,
    "integrations": integrations,
    "scaling": scaling,
    "family": family,
    "frontend": frontend,
    "latents": latents,
    "fast": fast,
    "mx": mx_errors,
    "trace-models": trace_models,
    "overhead": overhead,
    "planning": planning,
    "training": training,
}
_REFUSED = 2  # as argparse exits


def main(arguments: Sequence[str]) -> int:
    """Run one command; its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Times of trnconv's convolutions."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, command in _COMMANDS.items():
        command.add_options(commands.add_parser(name, help=command.HELP))
    options = parser.parse_args(arguments)
    try:
        exit_code: int = _COMMANDS[options.command].main(options)
    except TrnconvError as refusal:
        print(f"{options.command}: {refusal}", file=sys.stderr)
        return _REFUSED
    return exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
