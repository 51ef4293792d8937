"""What a pipeline has in hand: outputs on their way, and steps that prepare inputs."""

from __future__ import annotations

from typing import NamedTuple

from trnconv.forms.minimal.on_chip import OnChip
from trnconv.forms.minimal.recipe import Prepare, Unit
from trnconv.forms.minimal.score import OutWork


class OutputRun:
    """A rectangle of an output tile on its way, and what the second part of its chain needs."""

    __slots__ = ("added", "banks", "completes", "elems", "kept", "out", "tile", "unit", "wanted")

    def __init__(
        self, tile: OutWork, elems: int, unit: Unit, wanted: tuple[int, ...], out: OnChip | None
    ) -> None:
        self.tile = tile
        self.elems = elems
        self.unit = unit
        self.wanted = wanted
        self.out = out
        self.added: OnChip | None = None
        self.completes = False
        self.banks: list[OnChip] = []  # in hand
        self.kept: list[OnChip] = []


class Preparation(NamedTuple):
    """A step of preparing transformed inputs, or one of those `prepare_steps.py` names."""

    prepare: Prepare
    tile: int
    frame: int
    step: int
    after: int = 0  # so many early steps


class Preparations(NamedTuple):
    """Steps as `PrepareSteps` lists them: first loads, the GpSimd engine's, all others."""

    first: list[Preparation]
    early: list[Preparation]
    others: list[Preparation]
