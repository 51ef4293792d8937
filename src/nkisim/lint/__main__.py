"""`python -m nkisim.lint FILE... [--entry NAME]`: exit code 1 when a kernel leaves the subset."""

import argparse
import sys
from collections.abc import Sequence

from nkisim.lint.entry import lint_file
from nkisim.lint.report import Report


def main(argv: Sequence[str]) -> int:
    """Check the files and print a report; 0 without errors, 1 with, 2 if one cannot be read."""
    parser = argparse.ArgumentParser(
        prog="python -m nkisim.lint",
        description="Check NKI kernels against the Python subset NKI's compiler accepts.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--entry", metavar="NAME", help="start from this function only")
    options = parser.parse_args(argv)
    try:
        reports = [lint_file(file, entry=options.entry) for file in options.files]
    except (OSError, SyntaxError, ValueError) as problem:
        print(problem, file=sys.stderr)
        return 2
    report = Report.of(finding for each in reports for finding in each.findings)
    print(report)
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
