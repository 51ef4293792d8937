"""Allowance: a kernel may break some device rules, under a name and for a reason."""

from __future__ import annotations

from dataclasses import dataclass

from nkisim.device_rules.rulebook import find_rule


@dataclass(frozen=True)
class Allowance:
    """Rules that a kernel breaks knowingly. Whoever runs it finds them in `Run.rules`."""

    name: str
    rules: frozenset[str]
    reason: str

    def __post_init__(self) -> None:
        for rule in self.rules:
            find_rule(rule)
