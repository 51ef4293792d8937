"""Checks that a kernel stays inside the Python that NKI's compiler accepts, of 0.6 or of 0.7.

`lint` follows an imported kernel, `lint_source` and `lint_file` read text alone. Simulation proves
nothing about the subset, because a simulator runs any Python; this does. Standard library only.
"""

from nkisim.lint.argument_keys import argument_key_problems
from nkisim.lint.entry import lint, lint_file, lint_source
from nkisim.lint.report import Finding, Report
from nkisim.lint.rule import Rule
from nkisim.lint.rulebook import rules

__all__ = [
    "Finding",
    "Report",
    "Rule",
    "argument_key_problems",
    "lint",
    "lint_file",
    "lint_source",
    "rules",
]
