"""Which convolutions are exported: those of a model at a size, named layers, or those of a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nkisim.machine import Machine
from trnconv.cases import find as find_case
from trnconv.errors import ShapeError, TrnconvError, UnsupportedError
from trnconv.geometry import ConvShape, conv_shape
from trnconv.model_plan.traces import model_trace
from trnconv.models import find, models
from trnconv.models.sizes import size_of
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.policy import ALWAYS_DIRECT
from trnconv.traces import without_norms

_OPTIONS = ("stride", "padding", "dilation", "groups", "padding_mode")


@dataclass(frozen=True)
class ExportedProblem:
    """A convolution to be exported, and whose it is: modules of a model, or its name."""

    problem: ConvProblem
    names: tuple[str, ...]


def problems_of(what: str, size: str, phase: str, machine: Machine) -> list[ExportedProblem]:
    """A model of the registry, names of layers with commas between them, or a JSON file."""
    if what.endswith(".json"):
        return [_direct(shape, machine, name) for name, shape in _of_file(Path(what))]
    if what in {entry.name for entry in models()}:
        return _of_model(what, size, phase, machine)
    if size:
        raise ShapeError(f"--size {size} of {what}: layers have their sizes; models take one.")
    cases = [find_case(name) for name in what.split(",")]
    return [_direct(case.shape, machine, case.name, case.dtype) for case in cases]


def _of_model(name: str, size: str, phase: str, machine: Machine) -> list[ExportedProblem]:
    """Its convolutions as a patched model calls them, norms left to kernels of their own."""
    entry = find(name)
    if size.count("x") == 1:
        size = f"{size}x{entry.production.frames}"
    trace = without_norms(model_trace(entry, size_of(entry, size), phase))
    modules_of: dict[ConvProblem, list[str]] = {}
    for work, *_ in trace.works:
        problem = work.problem(machine, policy=ALWAYS_DIRECT)
        if not isinstance(problem.shape, ConvShape):
            raise UnsupportedError(f"{work.module}: transposed convolutions are not exported.")
        modules_of.setdefault(problem, []).append(work.module)
    return [ExportedProblem(problem, tuple(names)) for problem, names in modules_of.items()]


def _direct(
    shape: ConvShape, machine: Machine, name: str, dtype: str = "bfloat16"
) -> ExportedProblem:
    return ExportedProblem(ConvProblem(shape, machine, dtype, policy=ALWAYS_DIRECT), (name,))


def _of_file(path: Path) -> list[tuple[str, ConvShape]]:
    """[{"input": [1, 96, 6, 60, 104], "weight": [96, 96, 3, 3, 3], "padding": [0, 1, 1]}, ...]."""
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as trouble:
        raise TrnconvError(f"{path}: {trouble}. A list of shapes in JSON is needed.") from trouble
    if not isinstance(listed, list) or not listed:
        raise TrnconvError(f"{path}: a list of shapes is needed, and it is {type(listed)}.")
    return [(f"shape_{number}", _shape(path, record)) for number, record in enumerate(listed)]


def _shape(path: Path, record: Any) -> ConvShape:
    known = {"input", "weight", *_OPTIONS}
    if not isinstance(record, dict) or not {"input", "weight"} <= record.keys() <= known:
        raise TrnconvError(
            f"{path}: {record}: an object with input, weight and, of conv3d's arguments,"
            f" {', '.join(_OPTIONS)}."
        )
    options = {name: _tuples(record[name]) for name in _OPTIONS if name in record}
    return conv_shape(record["input"], record["weight"], **options)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value
