"""What the checker says: findings, and the report that holds them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Level = Literal["error", "warning"]


@dataclass(frozen=True, order=True)
class Finding:
    """One place in the source that leaves the subset."""

    file: str
    line: int  # counted from 1
    column: int  # counted from 1
    rule: str  # an identifier of `nkisim.lint.rules()`
    level: Level
    function: str  # qualified name of the function or class it stands in
    message: str
    remedy: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}"
        return f"{place}: {self.level} {self.rule} {self.message} (do: {self.remedy})"


@dataclass(frozen=True)
class Report:
    """Every finding about one kernel or file, in the order of the source."""

    findings: tuple[Finding, ...]
    nki: str = "0.7"  # the version it judges for

    @classmethod
    def of(cls, findings: Iterable[Finding], nki: str = "0.7") -> "Report":
        """A report of these findings, sorted, each once."""
        return cls(tuple(sorted(set(findings))), nki)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """What NKI's compiler refuses."""
        return tuple(finding for finding in self.findings if finding.level == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """What compiles, or may compile, but is deprecated, contradictory or a trap."""
        return tuple(finding for finding in self.findings if finding.level == "warning")

    @property
    def ok(self) -> bool:
        """Whether there are no errors; warnings do not count."""
        return not self.errors

    @property
    def counts(self) -> str:
        """As in "1 error, 2 warnings for NKI 0.7"."""
        errors, warnings = _count(len(self.errors), "error"), _count(len(self.warnings), "warning")
        return f"{errors}, {warnings} for NKI {self.nki}"

    def __str__(self) -> str:
        return "\n".join([*(str(finding) for finding in self.findings), self.counts])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
