"""DeviceRule: one thing that devices or their compiler do not take, with who says so."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from nkisim.machine import V2, V3, V4, Machine

EVERY = (V2, V3, V4)
NAMES = {V2: "trn1", V3: "trn2", V4: "trn3"}


class Strength(Enum):
    """How well a rule is supported."""

    S = "strong: a named probe, or several independent reports"
    M = "medium: one clear report"
    W = "weak: one remark with no isolated cause, or nobody has tried"
    X = "reports conflict"


class State(Enum):
    """What is done about a broken rule."""

    refused = "refused"
    warned = "warned"
    off = "off"


@dataclass(frozen=True, kw_only=True)
class DeviceRule:
    """A rule that a kernel can break.

    `forbids` says what the rule is about, `reported` what happened, `source` who reported it (a key
    of `sources.SOURCES`, and where), `seen_on` software and device. `generations` are the
    NeuronCores the rule is applied to, which may be more than those it was seen on.
    """

    name: str
    strength: Strength
    forbids: str
    reported: str
    source: str
    seen_on: str
    remedy: str
    generations: tuple[int, ...] = EVERY

    def concerns(self, machine: Machine) -> bool:
        """Whether the rule is applied to a machine."""
        return machine.generation in self.generations

    @property
    def machines(self) -> str:
        """The machines it is applied to, by name."""
        return ", ".join(NAMES[generation] for generation in self.generations)
