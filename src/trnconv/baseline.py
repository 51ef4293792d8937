"""The baseline: a model of the published design that copies every tap on chip, as stored times.

`benchmarks/scatter.py` models that design (nki-library's conv3d) on nkisim, which takes minutes for
a model; `data/scatter_trn2.csv` keeps what came out, for the calls that registered models make at
their production sizes and for the benchmark layers. Modelled like ours, not measured.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib import resources
from pathlib import Path

from nkisim.machine import CONSTANTS_VERSION, TRN2, Machine
from trnconv.catalogue import Call, calls
from trnconv.geometry import ONCE, ConvShape, Triple
from trnconv.models import ModelEntry, Size

DTYPE = "bfloat16"
NAME = "scatter baseline"
_WHAT = (
    "a model of the published design that copies every tap on chip (nki-library's conv3d), given"
    " the convolutions that the model calls; modelled on the same machine"
)
_HALVED = "; on two cores it takes half of its time on one, its rows or channels split ideally"
FIELDS = [
    field.name
    for field in fields(ConvShape)
    if field.name not in ("groups", "modes", "upsample", "skip")
]
Times = dict[ConvShape, float]  # ns, of shapes as `plain` makes them


def times_file() -> Path:
    """Where the times are; `python -m benchmarks models --trace` adds to it."""
    return Path(str(resources.files("trnconv") / "data" / "scatter_trn2.csv"))


def what(cores: int) -> str:
    """The baseline in words."""
    return _WHAT if cores == 1 else _WHAT + _HALVED


def plain(shape: ConvShape) -> ConvShape:
    """The shape with what the baseline does not tell apart left out."""
    return ConvShape(**{name: getattr(shape, name) for name in FIELDS})


@lru_cache(maxsize=1)
def stored() -> Times:
    """Times in the file, trn2, default reading, bf16; none if its constants are old."""
    with times_file().open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    return {_shape(row): float(row["ns"]) for row in rows if row["constants"] == CONSTANTS_VERSION}


def _shape(row: dict[str, str]) -> ConvShape:
    values = {name: row[name] for name in FIELDS}
    return ConvShape(
        **{
            name: tuple(map(int, text.split("x"))) if "x" in text else int(text)
            for name, text in values.items()
        }  # type: ignore[arg-type]
    )


def layer_ns(
    shape: ConvShape, machine: Machine = TRN2, dtype: str = DTYPE, cores: int = 1
) -> float | None:
    """The time of a layer on so many cores; None where none is stored.

    Stored times are of one core. On two, nki-library halves rows or channels (`lnc_shard`): that is
    taken to lose nothing.
    """
    if not _comparable(machine, dtype) or shape.groups > 1 or shape.upsample != ONCE:
        return None
    alone = stored().get(plain(shape))
    return None if alone is None else alone / cores


def _comparable(machine: Machine, dtype: str) -> bool:
    return machine.name == TRN2.name and dtype == DTYPE


@dataclass(frozen=True)
class ModelBaseline:
    """The baseline's times of all calls of one run of a model."""

    calls: tuple[tuple[Call, float], ...]  # ns of one call

    @property
    def seconds(self) -> float:
        """All calls one after the other."""
        return sum(call.calls * ns for call, ns in self.calls) / 1e9

    def ns_of(self, shape: ConvShape) -> float | None:
        """The time of a call that makes the same output of as many channels with the same taps."""
        times = [(call.calls, ns) for call, ns in self.calls if _made(call.shape()) == _made(shape)]
        return max(times)[1] if times else None


def _made(shape: ConvShape) -> tuple[int, int, Triple, Triple]:
    return shape.c_in, shape.c_out, shape.kernel, shape.out_sizes()


def model_baseline(
    entry: ModelEntry, size: Size, phase: str, machine: Machine = TRN2, cores: int = 1
) -> ModelBaseline | None:
    """Of a run as the catalogue has it, on so many cores; None where `layer_ns` has no time."""
    scenarios = [
        capture.scenario
        for capture in entry.captures
        if capture.tiling == "default"
        and phase in capture.phases
        and _same(entry.size(capture.size), size)
    ]
    if not scenarios or machine.name != TRN2.name:
        return None
    mine = [
        call
        for call in calls()
        if (call.model, call.scenario, call.phase) == (entry.catalogue, scenarios[0], phase)
    ]
    times = [layer_ns(call.shape(), cores=cores) if call.dense else None for call in mine]
    known = tuple((call, ns) for call, ns in zip(mine, times, strict=True) if ns is not None)
    return ModelBaseline(known) if len(known) == len(mine) > 0 else None


def _same(first: Size, second: Size) -> bool:
    return (first.frames, first.height, first.width) == (second.frames, second.height, second.width)
