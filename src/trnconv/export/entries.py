"""One exported convolution as JSON: what it is, its kernel's recipe, and how filters are packed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from trnconv.algorithms.algorithm import Lowered
from trnconv.algorithms.program import Prepared
from trnconv.errors import UnsupportedError
from trnconv.export.filter_copies import filter_copies
from trnconv.export.problems import ExportedProblem
from trnconv.geometry import ConvShape
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.epilogue import ITEM_BYTES
from trnconv.problem.launches import planned_parts, require_room
from trnconv.runtime.launch import prepare
from trnconv.runtime.plans import plans_for

Array = np.ndarray[Any, Any]
CLASS = "@"  # before the name of a class, as the first element of a list


@dataclass(frozen=True)
class ExportedEntry:
    """A document for the folder, and what it was made of."""

    document: dict[str, Any]
    prepared: Prepared
    kernel_module: str


def exported_entry(exported: ExportedProblem, cores: int | None = None) -> ExportedEntry:
    """Plan, lower, and say in plain data how filters get to their places."""
    prepared = _one_launch(exported, cores)
    pieces = exported.problem.pieces or (exported.problem.shape.size[0],)
    kernel = prepared.kernel(len(pieces))
    document = {
        "problem": problem_document(exported.problem),
        "names": list(exported.names),
        "machine": exported.problem.machine.name,
        "cores": len(prepared.plans),
        "macs": exported.problem.shape.macs(),
        "kernel": kernel.__name__,
        "takes_residual": prepared.algorithm.takes_residual,
        "recipe": encoded(prepared.recipe),
        "arrays": _arrays(prepared),
    }
    return ExportedEntry(document, prepared, kernel.__module__)


def problem_document(problem: ConvProblem) -> dict[str, Any]:
    """What tells problems apart, as a call of the folder's `conv3d` has it."""
    shape = problem.shape
    assert isinstance(shape, ConvShape)
    pieces = problem.pieces or (shape.size[0],)
    return {
        "pieces": [[shape.batch, shape.c_in, frames, *shape.size[1:]] for frames in pieces],
        "weight": [shape.c_out, shape.c_in // shape.groups, *shape.kernel],
        "stride": list(shape.stride),
        "before": list(shape.pad_before),
        "after": list(shape.pad_after),
        "dilation": list(shape.dilation),
        "groups": shape.groups,
        "modes": list(shape.modes),
        "upsample": list(shape.upsample),
        "skip": list(shape.skip),
        "dtype": problem.dtype,
        "activation": problem.epilogue.activation,
        "residual": problem.epilogue.residual,
    }


def encoded(value: Any) -> Any:
    """A recipe as lists: of an object, the class and its fields in their order."""
    if is_dataclass(value):
        field_values = [encoded(getattr(value, field.name)) for field in fields(value)]
        return [CLASS + type(value).__name__, *field_values]
    if isinstance(value, tuple):
        return [encoded(part) for part in value]
    return value


def classes_of(value: Any) -> Iterator[type]:
    """Every class of a recipe, with repetitions."""
    if is_dataclass(value):
        yield type(value)
        value = tuple(getattr(value, field.name) for field in fields(value))
    if isinstance(value, tuple):
        for part in value:
            yield from classes_of(part)


def _one_launch(exported: ExportedProblem, cores: int | None) -> Prepared:
    problem, name = exported.problem, exported.names[0]
    if problem.dtype not in ITEM_BYTES:
        raise UnsupportedError(f"{name}: {problem.dtype} is not exported.")
    require_room(problem)
    parts = list(planned_parts(problem, lambda part: prepare(plans_for(part, cores))))
    if len(parts) > 1:
        raise UnsupportedError(
            f"{name}: a convolution of {len(parts)} launches is not exported: a recipe is one."
            " Export a smaller size."
        )
    prepared = parts[0][1]
    if not prepared.algorithm.sources(prepared.lowered[0]):
        raise UnsupportedError(
            f"{name}: planned as {prepared.algorithm.name}, whose filters are packed by this"
            " package alone. Leave it out."
        )
    return prepared


def _arrays(prepared: Prepared) -> list[list[dict[str, Any]]]:
    """Of each core: where the elements of its arrays come from."""
    return [_of_core(prepared, lowered) for lowered in prepared.lowered]


def _of_core(prepared: Prepared, lowered: Lowered[Any]) -> list[dict[str, Any]]:
    algorithm, shape = prepared.algorithm, lowered.plan.shape
    sizes = (shape.c_out, shape.c_in // shape.groups, *shape.kernel)
    zeros = algorithm.pack(lowered, np.zeros(sizes, np.float32), None)
    made = []
    for array, source, channels in zip(
        zeros, algorithm.sources(lowered), algorithm.bias_channels(lowered), strict=True
    ):
        spec: dict[str, Any] = {"shape": list(array.shape), "dtype": str(array.dtype)}
        if source is not None:
            spec |= {"merged": source.merged, "copies": filter_copies(source)}
        elif channels is not None:
            spec |= {"channels": channels.tolist()}
        else:
            spec |= {"values": array.tolist()}
        made.append(spec)
    return made
