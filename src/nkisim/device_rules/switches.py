"""Switches: which device rules are refused, warned about, or off."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from nkisim.device_rules.rule import DeviceRule, State, Strength
from nkisim.device_rules.rulebook import find_rule
from nkisim.errors import refuse

RULES_VARIABLE = "NKISIM_RULES"
STRICT = "strict"
_SWITCHED = (Strength.W, Strength.X)


@dataclass(frozen=True)
class Switches:
    """What is done about broken rules: S is refused, M warned about, W and X are off.

    `strict` refuses what is warned about; `on` names rules of W or X that are refused.
    """

    strict: bool = False
    on: frozenset[str] = frozenset()

    def state_of(self, rule: DeviceRule) -> State:
        """What is done when a rule is broken."""
        if rule.strength is Strength.S or rule.name in self.on:
            return State.refused
        if rule.strength is Strength.M:
            return State.refused if self.strict else State.warned
        return State.off


DEFAULT: Final = Switches()


def read_switches(words: Iterable[str] | None) -> Switches:
    """Switches from words: `strict`, and names of rules that are off by default.

    None: the words of NKISIM_RULES, with commas between them.
    """
    if words is None:
        listed = os.environ.get(RULES_VARIABLE, "").split(",")
        words = [word.strip() for word in listed if word.strip()]
    elif isinstance(words, str):
        refuse("rules", f"rules={words!r}", "a sequence of words", f"pass ({words!r},)")
    given = frozenset(words)
    on = given - {STRICT}
    for name in on:
        if find_rule(name).strength not in _SWITCHED:
            refuse(
                "rules",
                f"a switch for the rule {name!r} of strength {find_rule(name).strength.name}",
                "switches turn rules of strength W or X on",
                f"leave it out; {STRICT!r} refuses every rule of strength M",
            )
    return Switches(strict=STRICT in given, on=on)
