"""`trnconv explain`: why a layer gets its plan, and what the others would cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trnconv.cli.heartbeat import working
from trnconv.cli.hints import hint
from trnconv.cli.layer_options import (
    Accuracy,
    Cores,
    LayerOptions,
    LayerRequest,
    MachineName,
    asked_layer,
    asked_problem,
    with_layer,
)
from trnconv.cli.model_options import TunedFile
from trnconv.cli.output import Json, console, print_json
from trnconv.cli.sheet import Field, Wide, sheet

if TYPE_CHECKING:
    from trnconv.problem.conv_problem import ConvProblem

_COLUMNS = (
    Field("accuracy", words=True),
    Field("time, us", "{:,.1f}".format),
    Field("expected error", "{:.3f}x".format),
    Field("bound"),
    Field("plan", words=True, rank=1),
)
_POLICIES = ("direct", "bf16", "fast", "fastest")
_TITLES, _TITLES_OF_TWO = ("Directly", "By every algorithm"), ("On two cores", "Against one core")


@with_layer
def explain(
    layer: LayerOptions,
    machine: MachineName = "trn2",
    accuracy: Accuracy = "bf16",
    cores: Cores = None,
    tuned: TunedFile = None,
    wide: Wide = False,
    json: Json = False,
) -> None:
    """Explain why a plan was chosen, and what the alternatives cost."""
    from trnconv.planner.tuned_plans import use_tuned

    named = asked_layer(layer)
    problem = asked_problem(named, machine, accuracy)
    with use_tuned(tuned), working(f"explaining {named.name}"):
        answer = _answer(named, problem, cores)
    if json:
        print_json(answer)
    else:
        _show(answer, wide=wide)


def _answer(named: LayerRequest, problem: ConvProblem, cores: int | None) -> dict[str, Any]:
    from trnconv.cli.plan_documents import layer_document
    from trnconv.host.workarounds import describe, workarounds_of
    from trnconv.model_plan import Prices
    from trnconv.runtime.describe import explained

    prices = Prices(cores=cores)
    policies = [
        _policy(replace(problem, policy=replace(problem.policy, accuracy=name)), prices)
        for name in _POLICIES
    ]
    document = layer_document(named, problem, prices.of(problem), cores)
    return {
        **document,
        "workarounds": [describe(name) for name in workarounds_of(problem.machine.name)],
        "words": list(explained(problem, cores)),
        "policies": policies,
    }


def _policy(problem: ConvProblem, prices: Any) -> dict[str, Any]:
    from trnconv.model_plan import is_tuned

    price = prices.of(problem)
    plan = price.plan.plan
    return {
        "accuracy": problem.policy.accuracy,
        "ns": price.ns,
        "bound": price.bound,
        "expected_error": plan.expected_ratio,
        "plan": plan.in_words(),
        "tuned": is_tuned(problem, price),
    }


def _show(answer: dict[str, Any], *, wide: bool) -> None:
    from trnconv.cli.plan_views import label, origin

    screen = console()
    screen.print(answer["layer"]["in_words"], markup=False)
    screen.print(label(answer, f"{answer['dtype']}, accuracy {answer['accuracy']}"), markup=False)
    for words in answer["workarounds"]:
        screen.print(f"Workaround {words}", markup=False)
    plan = f"Taken: {answer['plan']}, {answer['ns'] / 1e3:,.1f} us"
    screen.print(f"{plan}{origin(answer, ' ({})')}.", markup=False)
    titles = _TITLES if answer["cores"] == 1 else _TITLES_OF_TWO
    for title, text in zip(titles, answer["words"], strict=True):
        screen.print()
        screen.print(f"{title}:")
        screen.print(text, markup=False)
    screen.print()
    sheet(_COLUMNS, [_row(policy) for policy in answer["policies"]]).show(screen, wide=wide)
    screen.print("Expected error: RMS, over that of a direct convolution of the same dtype.")
    bound = next(p["bound"] for p in answer["policies"] if p["accuracy"] == answer["accuracy"])
    screen.print(f"Bound by {bound}. May help: {hint(bound)}", markup=False)


def _row(policy: dict[str, Any]) -> tuple[Any, ...]:
    plan = policy["plan"] + (" (tuned)" if policy["tuned"] else "")
    us = policy["ns"] / 1e3
    return policy["accuracy"], us, policy["expected_error"], policy["bound"], plan
