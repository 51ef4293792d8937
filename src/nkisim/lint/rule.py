"""What one rule of the subset consists of.

Evidence is written in short: PARSER is KLR (leanprover/KLR, commit 7ccd18c), the open ancestor of
NKI's parser front end; TRACER is the front end that runs the Python and records, 0.7's default
(levels for it: front_ends.py); DOCS are the NKI 0.6 documentation and release notes; SHIPPED is
aws-neuron/nki-library.
"""

from dataclasses import dataclass

from nkisim.lint.report import Level


@dataclass(frozen=True)
class Rule:
    """One rule of the Python subset."""

    identifier: str
    level: Level
    description: str  # what is found
    remedy: str  # what to write instead
    evidence: str
