"""Plans lowered to a program: a kernel, what it is called with, and its trace in nkisim."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import nkisim
from nkisim import Kernel, Run, Spec
from nkisim.machine import Machine, Reading
from nkisim.timing import Timeline, schedule
from trnconv.algorithms.algorithm import Algorithm, Array, ArraySpec, Lowered, Plan
from trnconv.algorithms.recipe_parts import RecipePair
from trnconv.errors import PlanError
from trnconv.problem.describe import describe_shape
from trnconv.problem.epilogue import NO_RESIDUAL

_T = TypeVar("_T")


@dataclass(frozen=True)
class Prepared:
    """A launch that is planned and lowered, for each core or once for cores that do the same."""

    algorithm: Algorithm[Any]
    plans: tuple[Plan, ...]  # one for each core
    lowered: tuple[Lowered[Any], ...]

    @property
    def recipe(self) -> Any:
        """The kernel's last argument: a recipe, or one for each core."""
        if len(self.lowered) == 1:
            return self.lowered[0].recipe
        first, second = self.lowered
        return RecipePair((first.recipe, second.recipe))

    def pack(self, w: Array | None, bias: Array | None) -> tuple[Array, ...]:
        """What the host prepares: arrays, each followed by the other core's if there are two."""
        return _in_iteration([self.algorithm.pack(lowered, w, bias) for lowered in self.lowered])

    def bias_channels(self) -> tuple[Array | None, ...]:
        """Whose bias the elements of each of these arrays are; empty: a bias packs all anew."""
        return _in_iteration([self.algorithm.bias_channels(lowered) for lowered in self.lowered])

    def kernel(self, inputs: int) -> Callable[..., Any]:
        """The kernel for so many tensors."""
        return self.algorithm.kernel(inputs, len(self.lowered))

    def arguments(
        self,
        inputs: tuple[Any, ...],
        packed: tuple[Any, ...],
        residual: Any = None,
        factors: Any = None,
        scales: Any = None,
    ) -> tuple[Any, ...]:
        """What the kernel is called with, in its order."""
        added = (residual,) if self.algorithm.takes_residual else ()
        scaled = (factors,) if self.algorithm.takes_factors else ()
        normed = (scales,) if self.algorithm.takes_scales else ()
        return (*inputs, *packed, *added, *scaled, *normed, self.recipe)


def prepared(algorithm: Algorithm[Any], plans: tuple[Plan, ...]) -> Prepared:
    """Lower plans of an algorithm that their machine can run; PlanError says why it cannot."""
    if any(plan.algorithm != algorithm.name for plan in plans):
        raise PlanError(
            f"plans of different algorithms: {', '.join(plan.algorithm for plan in plans)}."
        )
    if len(plans) > 1 and not algorithm.pair_kernels:
        raise PlanError(
            f"{len(plans)} plans of the {algorithm.name} algorithm: its kernel is for one core."
        )
    for plan in plans:
        broken = algorithm.violations(plan)
        if broken:
            words = f"{plan.in_words()}, for {describe_shape(plan.shape)}"
            raise PlanError(f"{words} on {plan.machine_name}: {'; '.join(broken)}.")
    distinct = dict.fromkeys(plans)
    return Prepared(algorithm, plans, tuple(algorithm.lower(plan) for plan in distinct))


def traced(program: Prepared) -> Run:
    """The instructions of a launch, checked by nkisim, without values."""
    first, plan = program.lowered[0], program.plans[0]
    inputs = _specs(first.inputs)
    arrays = _in_iteration([_specs(lowered.arrays) for lowered in program.lowered])
    asked = plan.epilogue.residual != NO_RESIDUAL
    y_shape = (plan.shape.batch, plan.shape.c_out, *plan.shape.out_sizes())
    added = y_shape if plan.epilogue.norm else first.outputs[0]
    if plan.epilogue.coarse is not None:
        added = plan.epilogue.coarse.sizes(y_shape)
    residual = Spec(added, plan.dtype) if asked else None
    factors = _specs((plan.factors_spec(),))[0] if plan.prologue.scaled else None
    scales = _specs((plan.scales_spec(),))[0] if plan.epilogue.norm else None
    return nkisim.run(
        Kernel(program.kernel(len(inputs)))[len(program.plans)],
        *program.arguments(inputs, arrays, residual, factors, scales),
        machine=plan.machine_name,
        lnc=len(program.plans),
        values=False,
    )


def timed(
    program: Prepared, reading: Reading = Reading.default, machine: Machine | None = None
) -> Timeline:
    """When the instructions of one core would run; `machine` replaces the plan's."""
    run = traced(program)
    return schedule(run.trace, machine or run.machine, reading, memory=run.memory)


def _in_iteration(packed: list[tuple[_T, ...]]) -> tuple[_T, ...]:
    """The first array of each core, then the second of each."""
    return tuple(array for arrays in zip(*packed, strict=True) for array in arrays)


def _specs(arrays: tuple[ArraySpec, ...]) -> tuple[Spec, ...]:
    return tuple(Spec(array.shape, array.dtype) for array in arrays)
