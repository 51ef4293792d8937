"""Stage 2: kernels from small to large, without torch: integers, equality, three runs each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from trnconv.algorithms.algorithm import Plan
from trnconv.algorithms.program import Prepared
from trnconv.bringup import fused_op_layers
from trnconv.bringup.ladder import GREEN, RED, Bench, Check, Finding
from trnconv.bringup.layers import LAYERS, LadderLayer, expected_of, operands_of
from trnconv.bringup.runner import Runner
from trnconv.bringup.stage1 import SEEDS, difference
from trnconv.problem.conv_problem import WEIGHT_GRADIENT, ConvProblem
from trnconv.runtime import compute
from trnconv.runtime.launch import LaunchOperands, prepare

STAGE: Final = 2


def checks() -> tuple[Check, ...]:
    """A check for each layer, and for each kernel between convolutions."""
    return (
        *(Check(STAGE, layer.name, layer.asks, partial(run, layer)) for layer in LAYERS),
        *(
            Check(STAGE, layer.name, layer.asks, partial(fused_op_layers.run, layer))
            for layer in fused_op_layers.FUSED_OP_LAYERS
        ),
    )


@dataclass(frozen=True)
class RunnerDevice:
    """Launches of given plans by a runner."""

    runner: Runner
    plans: tuple[Plan, ...]

    def prepared(self, problem: ConvProblem) -> Prepared:
        """The given plans."""
        del problem
        return prepare(self.plans)

    def launch(self, prepared: Prepared, operands: LaunchOperands) -> tuple[Any, ...]:
        """Packed, and called with arrays."""
        packed = prepared.pack(operands.w, operands.bias)
        given = (operands.residual, operands.factors, operands.scales)
        args = prepared.arguments(operands.inputs, packed, *given)
        return self.runner.call(prepared.kernel(len(operands.inputs)), args)

    def joined(self, pieces: tuple[Any, ...]) -> Any:
        """One array."""
        return np.concatenate(pieces, axis=2)

    def empty(self, sizes: tuple[int, ...], like: Any, dtype: str) -> Any:
        """A NumPy array."""
        return np.empty(sizes, np.dtype(dtype) if dtype else like.dtype)


def run(layer: LadderLayer, bench: Bench) -> Finding:
    """A layer under its plan on data of three seeds, against the definition."""
    problem = layer.problem(bench.machine)
    plans = layer.planned(problem, bench.cores)
    device = RunnerDevice(bench.runner, plans)
    words = f"{plans[0].in_words()}, {len(plans)} core{'s' if len(plans) > 1 else ''}"
    for seed in SEEDS:
        operands = operands_of(problem, 10 * seed, layer.most)
        if problem.direction == WEIGHT_GRADIENT:
            output = compute.weight_gradient(problem, operands, device)[0]
        else:
            output = compute.convolution(problem, operands, device)
        results = output if isinstance(output, tuple) else (output,)
        wrong = difference(tuple(map(np.asarray, results)), expected_of(problem, operands))
        if wrong:
            return Finding(RED, f"run {seed}, {words}: {wrong}", {"plan": words})
    return Finding(GREEN, f"{len(SEEDS)} runs equal: {words}", {"plan": words})
