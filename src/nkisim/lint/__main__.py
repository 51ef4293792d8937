"""`python -m nkisim lint PATH...`: exit code 1 when a kernel leaves the subset, 2 without one."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nkisim.lint.entry import count_kernels, lint_file
from nkisim.lint.front_ends import DEFAULT, FRONT_ENDS
from nkisim.lint.report import Report

_NOT_LINTED = 2  # as argparse exits


@dataclass(frozen=True)
class _FileCheck:
    """A file to check, from one function if `entry` names it.

    A file that was named is checked if it has functions, one of a folder if it has kernels.
    """

    file: Path
    entry: str | None
    kernels: int
    functions: int
    named: bool

    @property
    def checked(self) -> bool:
        return bool(self.kernels or self.entry or (self.named and self.functions))


def main(argv: Sequence[str]) -> int:
    """Check files and print a report; 0 without errors, 1 with, 2 if there is nothing to check."""
    parser = argparse.ArgumentParser(
        prog="python -m nkisim lint",
        description="Check NKI kernels against the Python subset NKI's compiler accepts.",
    )
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="a file, FILE:kernel, or a folder of files"
    )
    parser.add_argument("--entry", metavar="NAME", help="start from this function only")
    parser.add_argument(
        "--nki",
        choices=FRONT_ENDS,
        default=DEFAULT,
        help="whose front end judges: 0.6 parses, 0.7 traces (default: %(default)s)",
    )
    options = parser.parse_args(argv)
    try:
        checks = [file for path in options.paths for file in _files(path, options.entry)]
        reports = [lint_file(file.file, file.entry, options.nki) for file in checks if file.checked]
    except (OSError, SyntaxError, ValueError) as problem:
        print(problem, file=sys.stderr)
        return _NOT_LINTED
    if not reports:
        print(f"no kernels here: nothing under nki.jit in {_count(len(checks), 'file')}")
        return _NOT_LINTED
    findings = [finding for file_report in reports for finding in file_report.findings]
    report = Report.of(findings, options.nki)
    print("\n".join(_lines(checks, report)))
    return 0 if report.ok else 1


def _lines(checks: list[_FileCheck], report: Report) -> Iterator[str]:
    yield from map(str, report.findings)
    checked = [file for file in checks if file.checked]
    for file in checked:
        if not file.kernels and file.entry is None:
            functions = _count(file.functions, "function")
            yield f"{file.file}: no kernels here, nothing under nki.jit; checked {functions}"
    count = sum(1 if file.entry else file.kernels for file in checked)
    yield f"{_count(count, 'kernel')} in {_count(len(checked), 'file')}: {report.counts}"


def _files(path: str, entry: str | None) -> Iterator[_FileCheck]:
    """What a path of the command line asks for."""
    place = Path(path)
    if place.is_dir():
        for file in sorted(place.rglob("*.py")):
            yield _FileCheck(file, None, *count_kernels(file), named=False)
        return
    if not place.exists() and ":" in path:
        before, _, entry = path.rpartition(":")
        place = Path(before)
    yield _FileCheck(place, entry, *count_kernels(place), named=True)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
