"""One exported convolution as JSON: what it is, its kernel's recipe, and how filters are packed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from trnconv.ask.ends import ITEM_BYTES
from trnconv.ask.launches import planned_parts, require_room
from trnconv.ask.question import Question
from trnconv.errors import UnsupportedError
from trnconv.export.filter_copies import filter_copies
from trnconv.export.problems import ExportedProblem
from trnconv.forms.form import Lowered
from trnconv.forms.program import Prepared
from trnconv.geometry import ConvShape
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


def exported_entry(problem: ExportedProblem, cores: int | None = None) -> ExportedEntry:
    """Plan, lower, and say in plain data how filters get to their places."""
    prepared = _one_launch(problem, cores)
    pieces = problem.question.pieces or (problem.question.shape.size[0],)
    kernel = prepared.kernel(len(pieces))
    document = {
        "problem": problem_document(problem.question),
        "names": list(problem.names),
        "machine": problem.question.machine.name,
        "cores": len(prepared.plans),
        "macs": problem.question.shape.macs(),
        "kernel": kernel.__name__,
        "takes_residual": prepared.form.takes_residual,
        "recipe": encoded(prepared.recipe),
        "arrays": _arrays(prepared),
    }
    return ExportedEntry(document, prepared, kernel.__module__)


def problem_document(question: Question) -> dict[str, Any]:
    """What tells problems apart, as a call of the folder's `conv3d` has it."""
    shape = question.shape
    assert isinstance(shape, ConvShape)
    pieces = question.pieces or (shape.size[0],)
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
        "dtype": question.dtype,
        "activation": question.end.activation,
        "residual": question.end.residual,
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


def _one_launch(problem: ExportedProblem, cores: int | None) -> Prepared:
    question, name = problem.question, problem.names[0]
    if question.dtype not in ITEM_BYTES:
        raise UnsupportedError(f"{name}: {question.dtype} is not exported.")
    require_room(question)
    parts = list(planned_parts(question, lambda part: prepare(plans_for(part, cores))))
    if len(parts) > 1:
        raise UnsupportedError(
            f"{name}: a convolution of {len(parts)} launches is not exported: a recipe is one."
            " Export a smaller size."
        )
    prepared = parts[0][1]
    if not prepared.form.sources(prepared.lowered[0]):
        raise UnsupportedError(
            f"{name}: planned as {prepared.form.name}, whose filters are packed by this package"
            " alone. Leave it out."
        )
    return prepared


def _arrays(prepared: Prepared) -> list[list[dict[str, Any]]]:
    """Of each core: where the elements of its arrays come from."""
    return [_of_core(prepared, lowered) for lowered in prepared.lowered]


def _of_core(prepared: Prepared, lowered: Lowered[Any]) -> list[dict[str, Any]]:
    form, shape = prepared.form, lowered.plan.shape
    sizes = (shape.c_out, shape.c_in // shape.groups, *shape.kernel)
    zeros = form.pack(lowered, np.zeros(sizes, np.float32), None)
    made = []
    for array, source, channels in zip(
        zeros, form.sources(lowered), form.bias_channels(lowered), strict=True
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
