"""`trnconv verify`: a kernel against the definition, or a patched model against torch."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trnconv.cli.heartbeat import working
from trnconv.cli.layer_options import (
    Accuracy,
    Cores,
    LayerOptions,
    MachineName,
    asked_layer,
    asked_problem,
)
from trnconv.cli.model_options import (
    DEFAULT_PHASE,
    ModelName,
    Phase,
    TunedFile,
    require_model_alone,
    require_no_phase,
    with_layer_or_model,
)
from trnconv.cli.output import Json, console, print_json, table
from trnconv.cli.refusals import FAILED
from trnconv.errors import TrnconvError

if TYPE_CHECKING:
    from trnconv.verification.layer import Verdict

_SIMULATED_ON = "trn2"


@with_layer_or_model
def verify(
    layer: LayerOptions,
    model: ModelName = None,
    phase: Phase = None,
    machine: MachineName = _SIMULATED_ON,
    accuracy: Accuracy = "bf16",
    cores: Cores = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random data.")] = 0,
    tuned: TunedFile = None,
    json: Json = False,
) -> None:
    """Simulate a kernel on random data and check it against a reference.

    A layer is compared with float64; of a large layer only a part is simulated, and the output says
    so. A model (--model, needs torch and diffusers) runs with fewer channels and blocks, and is
    compared with torch in float32 and in bf16. Exit code 1 if an output is outside its error bound.
    """
    from trnconv.planner.tuned_plans import use_tuned

    with use_tuned(tuned):
        if model is None:
            require_no_phase(phase)
            answer = _of_layer(layer, (machine, accuracy), seed, cores)
            show = _show_layer
        else:
            require_model_alone(layer, model)
            _require_defaults(machine, seed, cores)
            answer = _of_model(model, layer.size, phase or DEFAULT_PHASE, accuracy)
            show = _show_model
    if json:
        print_json(answer)
    else:
        show(answer)
    if not answer["passed"]:
        raise typer.Exit(FAILED)


def _require_defaults(machine: str, seed: int, cores: int | None) -> None:
    """Refuse what a model would not listen to."""
    if machine != _SIMULATED_ON or seed or cores is not None:
        raise TrnconvError(
            f"--machine {machine} --seed {seed} --cores with --model: models are simulated on"
            f" {_SIMULATED_ON} with the registry's random weights. Verify single layers elsewhere."
        )


def _of_layer(
    layer: LayerOptions, where: tuple[str, str], seed: int, cores: int | None
) -> dict[str, Any]:
    from trnconv.verification.layer import verify_layer

    named = asked_layer(layer)
    if layer.transposed:
        raise TrnconvError(
            "trnconv verify --transposed: plain convolutions are verified. Ask plan, explain, time,"
            " trace or report."
        )
    problem = asked_problem(named, *where)
    with working(f"simulating {named.name}"):
        verdict = verify_layer(problem, seed, cores)
    return {
        "kind": "simulated",
        "layer": {"name": named.name, "in_words": named.in_words()},
        "machine": problem.machine.name,
        "dtype": named.dtype,
        "accuracy": problem.policy.accuracy,
        "seed": seed,
        **_document(verdict),
    }


def _document(verdict: Verdict) -> dict[str, Any]:

    return {
        "passed": verdict.passed,
        "cores": verdict.cores,
        "plan": verdict.plan.plan.in_words(),
        "cut": verdict.cut,
        "input": [verdict.shape.batch, verdict.shape.c_in, *verdict.shape.size],
        "errors": asdict(verdict.errors),
        "most_over_floor": verdict.most_over_floor,
    }


def _show_layer(answer: dict[str, Any]) -> None:
    from trnconv.problem.cores import describe_cores

    screen, errors = console(), answer["errors"]
    screen.print(answer["layer"]["in_words"], markup=False)
    cut = f", cut to {answer['cut']}" if answer["cut"] else ", all of it"
    screen.print(
        f"Simulated: {answer['machine']}, {describe_cores(answer['cores'])}, {answer['dtype']},"
        f" accuracy {answer['accuracy']}, normal data of seed {answer['seed']}{cut}."
    )
    screen.print(f"Plan: {answer['plan']}.", markup=False)
    screen.print()
    for line in _error_lines(errors, answer["most_over_floor"]):
        screen.print(line)
    screen.print()
    screen.print("passed" if answer["passed"] else "FAILED")


def _error_lines(errors: dict[str, Any], most: float | None) -> list[str]:
    floor = "the type holds the sums: there is no floor"
    if errors["over_floor"] is not None:
        allowed = "" if most is None else f", at most {most} allowed"
        floor = f"{errors['over_floor']:.4f} times that of the exact result rounded{allowed}"
    bound = f"the worst is at {errors['worst_of_bound']:.1%} of its derived bound"
    return [
        f"outputs         {errors['outputs']:,}, against float64",
        f"rms error       {errors['rms']:.3e} of the outputs' rms",
        f"over the floor  {floor}",
        f"largest error   {errors['largest']:.3e} of the largest output",
        f"outside bound   {errors['outside']:,} outputs; {bound}",
    ]


def _of_model(model: str, size: str | None, phase: str, accuracy: str) -> dict[str, Any]:
    from trnconv.corpus.storage.needs import needed_for
    from trnconv.models import find
    from trnconv.problem.policy import Policy

    entry = find(model)
    if size is not None:
        raise TrnconvError(
            f"--size {size} of a model to verify: it runs at {entry.tiny.height}x{entry.tiny.width}"
            f"x{entry.tiny.frames}, the registry's size for the narrow model. Leave --size out."
        )
    if phase not in entry.phases:
        raise TrnconvError(f"{phase} of {entry.name}: it can {' and '.join(entry.phases)}.")
    policy = Policy(accuracy)
    with needed_for("verifying a model", "diffusers"):
        from trnconv.pytorch.compare_models import ALLOWANCE, FACTOR, verify_model
    with working(f"simulating {entry.name}"):
        verdict = verify_model(entry, phase, policy.accuracy)
    clip = entry.tiny
    return {
        "kind": "simulated",
        "model": entry.name,
        "phase": phase,
        "cut": f"narrow and shallow, {clip.height}x{clip.width}x{clip.frames}",
        "accuracy": accuracy,
        "passed": verdict.passed,
        "factor": FACTOR,
        "allowance": ALLOWANCE,
        **asdict(verdict),
    }


def _show_model(answer: dict[str, Any]) -> None:
    screen = console()
    screen.print(
        f"{answer['model']} {answer['phase']}, {answer['cut']}: {answer['patched']} convolutions on"
        f" our kernels, {answer['left_to_torch']} left to torch."
    )
    screen.print(
        f"Simulated: {_SIMULATED_ON}, bfloat16, accuracy {answer['accuracy']}; against torch in"
        f" float32, {answer['outputs']:,} outputs."
    )
    screen.print()
    shown = table("", "relative error", "patched, bf16", "torch, bf16", "allowed")
    for kind in ("rms", "largest"):
        error, floor = answer["ours"][kind], answer["floor"][kind]
        most = answer["factor"] * floor + answer["allowance"]
        shown.add_row(kind, f"{error:.5f}", f"{floor:.5f}", f"{most:.5f}")
    screen.print(shown)
    screen.print()
    screen.print("passed" if answer["passed"] else "FAILED")
