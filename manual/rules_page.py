"""docs/reference/device-rules.md from nkisim/device_rules: rules, evidence, and their kernels."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from manual.rule_kernels import PAIRS, Launch
from manual.tables import table
from nkisim.device_rules.rule import DeviceRule, Strength
from nkisim.device_rules.rulebook import RULES
from nkisim.device_rules.sources import SOURCES
from nkisim.device_rules.switches import DEFAULT

HEAD = """# Device rules

What people who ran NKI kernels on devices have reported to fail, hang or come out wrong although
the documentation allows it. The rules stand in `nkisim/device_rules`, beside the hardware numbers;
this page is made from them by `python -m manual`; do not edit it. This project has run nothing on a
device: all of it is the word of others.

How strong a rule is decides what nkisim does with a kernel that breaks it:

"""
USE = """
`python -m nkisim rules` lists the rules and what is on, `python -m nkisim rules NAME` shows the
evidence for one. `nkisim.run(..., rules=("strict", "nested-loops"))` switches, and so does
`NKISIM_RULES=strict,nested-loops`. A refusal is a `DeviceRuleError`, a warning a
`DeviceRuleWarning`, both with the kernel's line; `Run.rules` lists what a run broke and why it went
on. `lnc=` of `nkisim.run` and `nkisim.simulate`, or `NEURON_LOGICAL_NC_CONFIG`, says how many cores
a logical NeuronCore has: 2 on trn2 and trn3 unless told, 1 on trn1.

## All rules

"""
ONE_BY_ONE = """
## One by one

Each with a kernel that breaks it and a neighbour that does not (`manual/rule_kernels.py`; `tile` is
zeros in SBUF, `bank` a PSUM tensor, `far` zeros in HBM). `tests/nkisim/device_rules` runs both.

"""
OURS = """## Our own kernels

The kernels of trnconv break none of these rules, those that are off included, on the machines that
they are planned for: `tests/trnconv/algorithms/test_strict.py` runs random plans of every algorithm
under all of them, on one core and on two. The workaround `split-partitions` of a machine, as in
`trn2+split-partitions`, lets plans break `dma-split-partitions`; no default has it on. A launch on
one core is one on logical cores of one: `NEURON_LOGICAL_NC_CONFIG=1` on a device.
"""
SOURCE_HEAD = """
## Sources

"""


def render() -> str:
    """The whole page."""
    parts = (
        *(HEAD, table(("strength", "means", "nkisim"), _strengths()), USE),
        table(("rule", "strength", "by default", "machines", "forbids"), _overview()),
        *(ONE_BY_ONE, *map(_section, RULES.values())),
        *(OURS, SOURCE_HEAD, *(f"- **{key}**: {what}\n" for key, what in SOURCES.items())),
    )
    return "".join(parts)


def _strengths() -> Iterator[tuple[str, ...]]:
    done = {
        Strength.S: "refuses",
        Strength.M: "warns; refuses in strict mode",
        Strength.W: "a switch, off",
        Strength.X: "a switch, off",
    }
    for strength in Strength:
        yield strength.name, strength.value, done[strength]


def _overview() -> Iterator[tuple[str, ...]]:
    for rule in RULES.values():
        link = f"[`{rule.name}`](#{rule.name})"
        state = DEFAULT.state_of(rule).value
        yield link, rule.strength.name, state, rule.machines, rule.forbids


def _section(rule: DeviceRule) -> str:
    pair = PAIRS[rule.name]
    return (
        f"### {rule.name}\n\n"
        f"Forbids {rule.forbids}. Strength {rule.strength.name} ({rule.strength.value}), applied to"
        f" {rule.machines}.\n\n"
        f"- Reported: {rule.reported}.\n"
        f"- Source: {rule.source}. Seen on: {rule.seen_on}.\n"
        f"- Instead: {rule.remedy}.\n\n"
        f"{_kernel('Breaks it', pair.breaks)}{_kernel('Does not', pair.keeps)}"
    )


def _kernel(what: str, launch: Launch) -> str:
    programs = f"{launch.programs} program{'s' if launch.programs > 1 else ''}"
    where = f"{launch.machine}, {programs}, logical cores of {launch.lnc}"
    source = inspect.getsource(launch.kernel)
    return f"{what} ({where}):\n\n```py\n{source}```\n\n"
