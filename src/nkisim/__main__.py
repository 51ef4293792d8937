"""`python -m nkisim run | time | trace | lint FILE...`, and surface, rules, bench."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final

from nkisim import bench, rules_command, surface
from nkisim.commands import run_command, time_command, trace_command
from nkisim.commands.kernel_call import reporting
from nkisim.lint.__main__ import main as lint_main
from nkisim.running.api_version import DEFAULT, VERSIONS, NkiVersion

_ON_KERNELS: Final = {"run": run_command, "time": time_command, "trace": trace_command}


def main(arguments: Sequence[str]) -> int:
    """Run one command; its exit code."""
    if arguments[:1] == ["lint"]:
        return lint_main(arguments[1:])  # it has a parser of its own
    parser = argparse.ArgumentParser(prog="python -m nkisim", description="A NeuronCore in NumPy.")
    commands = parser.add_subparsers(dest="command", required=True)
    names = commands.add_parser("surface", help="every public name of NKI: implemented or refused")
    names.add_argument("--nki", choices=VERSIONS, default=DEFAULT, help="default: %(default)s")
    commands.add_parser("lint", help="what NKI's compiler would not accept in a file's kernels")
    timing = commands.add_parser("bench", help="how fast nkisim itself runs on this computer")
    timing.add_argument(
        "--million", action="store_true", help="also run 1,000,000 instructions, and show memory"
    )
    rules_command.add_parser(commands)
    for command in _ON_KERNELS.values():
        command.add_parser(commands)
    options = parser.parse_args(arguments)
    if options.command == "bench":
        return bench.main(million=options.million)
    if options.command == "rules":
        return rules_command.main(options)
    if options.command in _ON_KERNELS:
        return reporting(_ON_KERNELS[options.command].main, options)
    return _surface(options.nki)


def _surface(version: NkiVersion) -> int:
    rows = surface.compare(version)
    print(surface.table(rows))
    return 1 if any(row.status == "missing" for row in rows) else 0


def _until_the_reader_leaves(arguments: list[str]) -> int:
    """`main`, quiet if what reads its output ends first, as `| head` does."""
    try:
        code = main(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


if __name__ == "__main__":
    sys.exit(_until_the_reader_leaves(sys.argv[1:]))
