"""All device rules, by name."""

from __future__ import annotations

from typing import Final

from nkisim.device_rules.instruction_rules import INSTRUCTION_RULES
from nkisim.device_rules.loop_rules import LOOP_RULES
from nkisim.device_rules.rule import DeviceRule
from nkisim.errors import refuse

RULES: Final = {rule.name: rule for rule in (*LOOP_RULES, *INSTRUCTION_RULES)}


def find_rule(name: str) -> DeviceRule:
    """The rule of that name."""
    if name not in RULES:
        refuse(
            "device rules",
            f"a rule named {name!r}",
            f"one of {', '.join(sorted(RULES))}",
            "`python -m nkisim rules` lists them",
        )
    return RULES[name]
