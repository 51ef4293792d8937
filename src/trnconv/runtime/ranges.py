"""Calibration: the largest |x| that each layer was fed, as part of a fast plan's contract.

fp16 ends at 65504, and a transform adds up inputs: F(2,3) takes |x| up to 32752, F(4,3) up to 6550.
Whether a layer stays within that is a property of the model and its data, so it is recorded from
samples, kept with the model, and given to the planner.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from trnconv.errors import TrnconvError
from trnconv.problem.policy import Policy

Array = np.ndarray[Any, Any]
MARGIN = 2.0  # what was not sampled may be that much larger


@dataclass(frozen=True)
class Ranges:
    """The largest |x| of each layer, as sampled."""

    largest: dict[str, float] = field(default_factory=dict)

    def with_sample(self, layer: str, x: Array) -> Ranges:
        """One more input of a layer."""
        seen = float(np.abs(x.astype(np.float32)).max())
        if not np.isfinite(seen):
            raise TrnconvError(f"a sample of {layer} has Inf or NaN: calibrate with finite data.")
        return Ranges(self.largest | {layer: max(seen, self.largest.get(layer, 0.0))})

    def __contains__(self, layer: str) -> bool:
        """Whether a layer was sampled."""
        return layer in self.largest

    def policy(self, layer: str, policy: Policy) -> Policy:
        """A policy that knows the range of a layer, with a margin."""
        if layer not in self.largest:
            raise TrnconvError(
                f"layer {layer!r} was not sampled: known are {', '.join(self.largest) or 'none'}."
                " Calibrate it, or check the range at every call."
            )
        return replace(policy, x_max=MARGIN * self.largest[layer])

    def save(self, file: Path) -> None:
        """As JSON."""
        file.write_text(json.dumps(self.largest, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, file: Path) -> Ranges:
        """What `save` wrote."""
        return cls({str(k): float(v) for k, v in json.loads(file.read_text("utf-8")).items()})


def calibrate(samples: Mapping[str, Iterable[Array]]) -> Ranges:
    """The ranges of layers, from sample inputs of each."""
    ranges = Ranges()
    for layer, inputs in samples.items():
        for x in inputs:
            ranges = ranges.with_sample(layer, x)
    return ranges
