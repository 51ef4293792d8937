"""What a search takes for two hundred named problems: a change of plans is seen by a person."""

from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import pytest

from nkisim.machine import CONSTANTS_VERSION, find_machine
from pinned_problems import WEIGHT_GRADIENT, pinned_problems
from trnconv.model_plan import PlanOptions, model_plan
from trnconv.planner.best import searched_plan
from trnconv.planner.shares import searched_pair
from trnconv.planner.shipped_plans import shipped_plans_used
from trnconv.problem.conv_problem import FORWARD, ConvProblem
from trnconv.problem.epilogue import BEFORE, PLAIN_EPILOGUE, Epilogue, epilogue_of
from trnconv.problem.policy import policy_of

PINNED = Path(__file__).parents[2] / "golden" / "plans.txt"
STEP = 20  # of so many problems two are planned in every run
# Of a plan, what a problem already says.
_ASKED = {"reduced", "shape", "machine_name", "dtype", "epilogue", "prologue", "pieces"}
# What one of two cores computes, and what few plans decide, where they say so.
_SHARES = {"columns_of", "lines_of", "outputs_of", "outs_of", "ins_of", "strips_of"}
_SELDOM = set(
    "unit_frames x_tiles shares_residual residual_buffers stacked_columns late_pauses".split()
)


def answers(pinned):
    """The plans taken, with their costs: one, or one for each of two cores."""
    gradient = pinned.asks == WEIGHT_GRADIENT
    epilogue = epilogue_of("identity", BEFORE, "") if pinned.residual else PLAIN_EPILOGUE
    problem = ConvProblem(
        pinned.shape,
        find_machine(pinned.machine),
        pinned.dtype,
        pinned.pieces,
        Epilogue(dtype="float32") if gradient else epilogue,
        pinned.reproducible,
        policy=policy_of(pinned.accuracy),
        exact=pinned.exact,
        direction=WEIGHT_GRADIENT if gradient else FORWARD,
    )
    return searched_pair(problem) if pinned.cores == 2 else [searched_plan(problem)]


def decisions(value):
    """Values without the names of their fields, which may change."""
    if is_dataclass(value):
        unsaid = {one.name for one in fields(value) if getattr(value, one.name) == one.default}
        left_out = _ASKED | ((_SHARES | _SELDOM) & unsaid)
        own = [field.name for field in fields(value) if field.name not in left_out]
        return "(" + " ".join(decisions(getattr(value, name)) for name in own) + ")"
    if isinstance(value, tuple):
        return "[" + " ".join(map(decisions, value)) + "]"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else repr(value)


def row(answer):
    """A plan in one line."""
    cost = answer.cost
    return (
        f"  {answer.plan.algorithm}: {cost.total_ns / 1e3:.3f} us, {cost.instructions}"
        f" instructions, {cost.sbuf_bytes} bytes, {cost.hbm_bytes} moved\n"
        f"    {decisions(answer.plan)}"
    )


def text_of(problem):
    return "\n".join([problem.title, *map(row, answers(problem))]) + "\n"


@pytest.mark.slow
def test_the_planner_takes_the_pinned_plans(golden):
    texts = [text_of(problem) for problem in pinned_problems()]
    golden("plans.txt", "".join([f"constants {CONSTANTS_VERSION}\n", *texts]))


@pytest.mark.parametrize("first", range(2))
def test_the_planner_takes_some_of_the_pinned_plans(first):
    """In every run; `-m slow` has all of them, and rewrites them."""
    pinned = PINNED.read_text(encoding="utf-8")
    assert pinned.startswith(f"constants {CONSTANTS_VERSION}\n")
    for problem in pinned_problems()[first::STEP]:
        assert f"\n{text_of(problem)}" in pinned


def test_two_hundred_problems_have_names_of_their_own():
    problems = pinned_problems()
    assert len(problems) >= 200
    assert len({problem.title for problem in problems}) == len(problems)
    pinned = PINNED.read_text(encoding="utf-8").splitlines()
    assert [line for line in pinned[1:] if not line.startswith(" ")] == [
        problem.title for problem in problems
    ]


@pytest.mark.parametrize("name", ["wan_96_wide", "cogvideox_512"])
def test_a_changed_decision_changes_the_text(name):
    problem = next(one for one in pinned_problems() if one.name == name)
    (answer,) = answers(problem)
    other = replace(answer.plan, columns=answer.plan.columns + 1)
    assert decisions(other) != decisions(answer.plan)


@pytest.mark.slow
@pytest.mark.parametrize("accuracy", ["bf16", "fast"])
@pytest.mark.parametrize("model", ["wan2.1", "cogvideox", "hunyuanvideo", "qwen-image"])
def test_whole_models_take_the_pinned_plans(golden, model, accuracy):
    with shipped_plans_used(wanted=False):
        plan = model_plan(model, options=PlanOptions(accuracy=accuracy, cores=1))
    totals = f"{plan.instructions} instructions, {plan.convolution_bytes} bytes"
    lines = [f"constants {CONSTANTS_VERSION}, {plan.seconds:.6f} s, {totals}"]
    for layer in plan.layers:
        lines += [f"{layer.calls} x {layer.modules[0]}", row(layer.price.plan)]
    golden(f"plans_{model}_{accuracy}.txt", "\n".join(lines) + "\n")
