"""The traces that come with the package: one file for a model, a registered size and a phase.

`python -m benchmarks trace-models` writes them, and a test traces some of them again.
"""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources
from typing import Any

from trnconv.models import ModelEntry, Size
from trnconv.records import RecordError, from_json, to_json
from trnconv.traces.model_trace import ModelTrace, TracedConv

_TABLES = ("convolutions", "works", "operations", "operations_unfused", "operations_as_is")


def shipped(entry: ModelEntry, size: Size, phase: str) -> ModelTrace | None:
    """What the model was seen to do at this size; None if nobody looked."""
    for known in entry.sizes:
        same = (known.frames, known.height, known.width) == (size.frames, size.height, size.width)
        source = resources.files("trnconv.traces") / "data" / file_name(entry, known, phase)
        if same and source.is_file():
            return trace_of(json.loads(source.read_text(encoding="utf-8")))
    return None


def file_name(entry: ModelEntry, size: Size, phase: str) -> str:
    """Where a trace is kept."""
    return f"{entry.name}_{size.name}_{phase}.json"


def shipped_text(trace: ModelTrace) -> str:
    """A trace as a file: a line for each convolution, module's calls and operation."""
    document = to_json(trace)
    bare: dict[TracedConv, int] = {}
    calls = []
    for work, times in trace.works:
        place = bare.setdefault(replace(work, module=""), len(bare))
        calls.append([work.module, place, times])
    document["works"] = calls
    document["convolutions"] = [_without_module(work) for work in bare]
    lines = [f"{json.dumps(name)}: {_value(name, value)}" for name, value in document.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def trace_of(document: dict[str, Any]) -> ModelTrace:
    """The trace of a file that `shipped_text` wrote."""
    convolutions = document.pop("convolutions", None)
    if not isinstance(convolutions, list):
        raise RecordError("a trace without its list of convolutions: write it again.")
    document["works"] = [
        [{"module": module, **convolutions[place]}, times]
        for module, place, times in document["works"]
    ]
    return from_json(ModelTrace, document)


def _without_module(work: TracedConv) -> dict[str, Any]:
    document = to_json(work)
    del document["module"]
    return document


def _value(name: str, value: Any) -> str:
    if name not in _TABLES:
        return json.dumps(value)
    return "[\n" + ",\n".join(f" {json.dumps(row)}" for row in value) + "\n]"
