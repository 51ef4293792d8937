"""One launch: plans lowered, operands packed, a kernel called. The same for every form.

In nkisim with data (`run`), and without for modelled times (`trace_plan`, `time_plan`); a device
gets the same kernel and operands (`Prepared`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import nkisim
from nkisim import Run, Spec
from nkisim.machine import Machine, Reading
from nkisim.timing import Timeline, schedule, schedule_launch
from trnconv.ask.ends import NO_RESIDUAL
from trnconv.ask.words import shape_in_words
from trnconv.errors import PlanError
from trnconv.forms.form import Array, ArraySpec, Form, Lowered, Plan
from trnconv.forms.recipe_parts import RecipePair
from trnconv.planner.table import form_of
from trnconv.runtime.allowance import allowed

_T = TypeVar("_T")
MOST_PIECES = 3  # tensors that x may lie in: each is an argument of a kernel


@dataclass(frozen=True)
class Operands:
    """What a launch is given: arrays of NumPy, or tensors of torch."""

    inputs: tuple[Any, ...]  # x in its pieces along the frames, or x and dy
    w: Any = None  # [C_out, C_in / groups, KD, KH, KW]
    bias: Any = None
    residual: Any = None


@dataclass(frozen=True)
class Prepared:
    """A launch that is planned and lowered, for each core or once for cores that do the same."""

    form: Form[Any]
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
        return _in_turn([self.form.pack(each, w, bias) for each in self.lowered])

    def kernel(self, inputs: int) -> Callable[..., Any]:
        """The kernel for so many tensors."""
        return self.form.kernel(inputs, len(self.lowered))

    def arguments(self, inputs: tuple[Any, ...], packed: tuple[Any, ...], residual: Any) -> Any:
        """What the kernel is called with, in its order."""
        added = (residual,) if self.form.takes_residual else ()
        return (*inputs, *packed, *added, self.recipe)


def prepare(plans: tuple[Plan, ...]) -> Prepared:
    """Lower plans that their machine can run; PlanError says why it cannot."""
    form = form_of(plans[0])
    if any(plan.form != form.name for plan in plans):
        raise PlanError(f"plans of different forms: {', '.join(plan.form for plan in plans)}.")
    if len(plans) > 1 and not form.pair_kernels:
        raise PlanError(f"{len(plans)} plans of the {form.name} form: its kernel is for one core.")
    for plan in plans:
        broken = form.broken_rules(plan)
        if broken:
            words = f"{plan.in_words()}, for {shape_in_words(plan.shape)}"
            raise PlanError(f"{words} on {plan.machine}: {'; '.join(broken)}.")
    distinct = dict.fromkeys(plans)
    return Prepared(form, plans, tuple(form.lower(plan) for plan in distinct))


def run(prepared: Prepared, operands: Operands) -> Run:
    """The kernel in nkisim, with data."""
    plans, inputs = prepared.plans, operands.inputs
    prepared.form.check_inputs(plans[0], inputs)
    packed = prepared.pack(operands.w, operands.bias)
    return nkisim.run(
        allowed(prepared.kernel(len(inputs)))[len(plans)],
        *prepared.arguments(inputs, packed, operands.residual),
        target=plans[0].machine,
        summation="fixed" if all(plan.is_reproducible for plan in plans) else "fast",
    )


def trace_plans(plans: tuple[Plan, ...]) -> Run:
    """The instructions of a launch, one plan for each core, checked by nkisim, without values."""
    prepared = prepare(plans)
    first = prepared.lowered[0]
    inputs = _specs(first.inputs)
    arrays = _in_turn([_specs(lowered.arrays) for lowered in prepared.lowered])
    plan = plans[0]
    asked = plan.end.residual != NO_RESIDUAL
    residual = Spec(first.outputs[0], plan.dtype) if asked else None
    return nkisim.run(
        allowed(prepared.kernel(len(inputs)))[len(plans)],
        *prepared.arguments(inputs, arrays, residual),
        target=plan.machine,
        values=False,
    )


def _in_turn(packed: list[tuple[_T, ...]]) -> tuple[_T, ...]:
    """The first array of each core, then the second of each."""
    return tuple(array for arrays in zip(*packed, strict=True) for array in arrays)


def _specs(arrays: tuple[ArraySpec, ...]) -> tuple[Spec, ...]:
    return tuple(Spec(array.shape, array.dtype) for array in arrays)


def trace_plan(plan: Plan) -> Run:
    """The same on one core."""
    return trace_plans((plan,))


def time_plan(
    plan: Plan, reading: Reading = Reading.default, machine: Machine | None = None
) -> Timeline:
    """When each of them would run; `machine` replaces the plan's, to change an assumption."""
    traced = trace_plan(plan)
    return schedule(traced.trace, machine or traced.machine, reading, memory=traced.memory)


def time_plans(plans: tuple[Plan, ...], reading: Reading = Reading.default) -> Timeline:
    """The same of a launch on as many cores as there are plans: the core that ends last."""
    traced = trace_plans(plans)
    every = schedule_launch(traced.traces, traced.machine, reading, memories=traced.memories)
    return max(every, key=lambda timeline: timeline.makespan_ns)
