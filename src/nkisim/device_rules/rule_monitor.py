"""RuleMonitor: the device rules that a run breaks: refused, warned about once, or noted."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nkisim.device_rules.rule import DeviceRule, State
from nkisim.errors import DeviceRuleError
from nkisim.source_lines import SourceLine, user_place

if TYPE_CHECKING:
    from nkisim.device_rules.switches import Switches
    from nkisim.machine import Machine


class DeviceRuleWarning(UserWarning):
    """A kernel breaks a device rule that one report supports."""


@dataclass(frozen=True)
class TouchedRule:
    """A rule that a run broke and went on: what broke it first, where, and why it went on."""

    rule: DeviceRule
    state: State
    what: str
    place: SourceLine | None  # the kernel's line

    def __str__(self) -> str:
        return f"{self.rule.name} ({self.rule.strength.name}, {self.state.value}): {self.what}"


class RuleMonitor:
    """The broken rules of one core."""

    def __init__(self, machine: Machine, switches: Switches) -> None:
        self._machine = machine
        self._switches = switches
        self.touched: dict[str, TouchedRule] = {}

    def unseen(self, rule: DeviceRule) -> bool:
        """Whether a rule holds here and was not broken yet: if it is worth looking."""
        return rule.name not in self.touched and rule.concerns(self._machine)

    def broken(
        self,
        rule: DeviceRule,
        what: str,
        instruction: str | None = None,
        place: SourceLine | None = None,
    ) -> None:
        """Do what is to be done about a rule that does not hold.

        `place` is the line that broke it; None: the kernel's line that is running.
        """
        if not self.unseen(rule):
            return
        where = place or user_place()
        state = self._switches.state_of(rule)
        if state is State.refused:
            raise DeviceRuleError(
                what,
                instruction=instruction,
                limit=evidence(rule),
                remedy=rule.remedy,
                place=where,
                rule=rule.name,
            )
        told = f"{instruction}: {what}" if instruction else what
        self.touched[rule.name] = TouchedRule(rule, state, told, where)
        if state is State.warned:
            text = f"{told}\n  limit:  {evidence(rule)}\n  remedy: {rule.remedy}"
            file, line = (where.file, where.line) if where else ("nkisim", 0)
            warnings.warn_explicit(text, DeviceRuleWarning, file, line)


def evidence(rule: DeviceRule) -> str:
    """Which rule it is, how strong, and what was seen on which device."""
    seen = f"{rule.strength.name}; {rule.seen_on}"
    return f"rule {rule.name} forbids {rule.forbids} ({seen}: {rule.reported})"
