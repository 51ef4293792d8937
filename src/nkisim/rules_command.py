"""`python -m nkisim rules`: the device rules, what is done about each, and the evidence."""

from __future__ import annotations

import argparse
import sys
import textwrap
from typing import TYPE_CHECKING

from nkisim.device_rules.rule import DeviceRule, State
from nkisim.device_rules.rulebook import RULES, find_rule
from nkisim.device_rules.sources import SOURCES
from nkisim.device_rules.switches import RULES_VARIABLE, STRICT, Switches, read_switches
from nkisim.errors import NkiValidationError
from nkisim.machine import MACHINES, find_machine

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 (no public name)

_UNKNOWN_RULE = 2  # as argparse exits


def add_parser(commands: Commands) -> None:
    """Add the command to those of `python -m nkisim`."""
    parser = commands.add_parser("rules", help="what devices were reported not to take, and why")
    parser.add_argument("name", nargs="*", help="show the evidence for these rules")
    parser.add_argument("--machine", choices=sorted(MACHINES), help="only the rules of a machine")
    parser.add_argument("--strict", action="store_true", help="as if strict mode were on")


def main(options: argparse.Namespace) -> int:
    """Print the rules; the exit code."""
    try:
        switches = read_switches(None)
        chosen = [find_rule(name) for name in options.name]
    except NkiValidationError as error:
        sys.stderr.write(f"rules: {error}\n")
        return _UNKNOWN_RULE
    switches = Switches(strict=switches.strict or options.strict, on=switches.on)
    if chosen:
        sys.stdout.write("\n\n".join(_evidence(rule, switches) for rule in chosen) + "\n")
        return 0
    rules = list(RULES.values())
    if options.machine:
        rules = [rule for rule in rules if rule.concerns(find_machine(options.machine))]
    sys.stdout.write(_table(rules, switches) + "\n")
    return 0


def _table(rules: list[DeviceRule], switches: Switches) -> str:
    width = max(len(rule.name) for rule in rules)
    rows = [f"{'rule':<{width}}    state    machines          forbids"]
    states = [switches.state_of(rule) for rule in rules]
    for rule, state in zip(rules, states, strict=True):
        head = f"{rule.name:<{width}}  {rule.strength.name} {state.value:<8} {rule.machines:<17} "
        rows.append(head + rule.forbids)
    counts = ", ".join(
        f"{states.count(state)} {state.value}" for state in (State.refused, State.warned, State.off)
    )
    rows += [
        "",
        f"{len(rules)} rules: {counts}. Strength: S strong, M medium, W weak, X reports conflict.",
        f"S is refused, M warned about (refused with {STRICT!r}), W and X are off until named.",
        f"Switches: nkisim.run(rules=({STRICT!r}, NAME)), or {RULES_VARIABLE}={STRICT},NAME.",
        "Evidence: python -m nkisim rules NAME. What a run broke: Run.rules.",
    ]
    return "\n".join(rows)


def _evidence(rule: DeviceRule, switches: Switches) -> str:
    parts = {
        "forbids": rule.forbids,
        "reported": rule.reported,
        "strength": f"{rule.strength.name}, {rule.strength.value}",
        "state": switches.state_of(rule).value,
        "machines": rule.machines,
        "seen on": rule.seen_on,
        "source": rule.source,
        "remedy": rule.remedy,
    }
    cited = [key for key in SOURCES if key.partition("#")[0] in rule.source]
    lines = [rule.name]
    for name, text in (*parts.items(), *((key, SOURCES[key]) for key in cited)):
        lines += textwrap.wrap(text, 96, initial_indent=f"  {name:<10}", subsequent_indent=" " * 12)
    return "\n".join(lines)
