"""The simulated device: kernels in nkisim, on NumPy arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nkisim import Run
from trnconv.algorithms.algorithm import Plan
from trnconv.algorithms.program import Prepared
from trnconv.problem.conv_problem import ConvProblem
from trnconv.runtime.launch import LaunchOperands, prepare, run
from trnconv.runtime.plans import plans_for


@dataclass
class SimulatedDevice:
    """Launches in nkisim, and what it saw of them."""

    cores: int | None = None  # of a launch; None: as many as the machine's has
    plans: tuple[Plan, ...] = ()  # in place of the planner's choice
    launched: list[tuple[tuple[Plan, ...], Run]] = field(default_factory=list)

    def prepared(self, problem: ConvProblem) -> Prepared:
        """By the planner, unless plans were given."""
        return prepare(self.plans or plans_for(problem, self.cores))

    def launch(self, prepared: Prepared, operands: LaunchOperands) -> tuple[Any, ...]:
        """In nkisim."""
        done = run(prepared, operands)
        self.launched.append((prepared.plans, done))
        outputs = done.outputs if isinstance(done.outputs, tuple) else (done.outputs,)
        return tuple(np.asarray(output) for output in outputs)

    def joined(self, pieces: tuple[Any, ...]) -> Any:
        """One array."""
        return np.concatenate(pieces, axis=2)

    def empty(self, sizes: tuple[int, ...], like: Any, dtype: str) -> Any:
        """A NumPy array."""
        return np.empty(sizes, np.dtype(dtype) if dtype else like.dtype)
