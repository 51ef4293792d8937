"""What a registered model does, as an Observation: it runs on the meta device."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from importlib.metadata import version

from trnconv.models import ModelEntry, Size
from trnconv.observed import Kept, Moved, Observation, ObservedConv, Operation
from trnconv.observed.groups import operations_of
from trnconv.pytorch.estimate import MetaRun, observe_entry
from trnconv.pytorch.lazy.context import ALL_REWRITES, NO_REWRITES, Rewrites

_UNFUSED = replace(ALL_REWRITES, fuse_norms=False, fuse_attention=False)


def observe(
    entry: ModelEntry, size: Size, phase: str, *, rewrites: Rewrites = ALL_REWRITES
) -> Observation:
    """One encode or decode in bf16, batch 1, with the tiling its class has by default."""
    run = observe_entry(entry, size, phase, rewrites=rewrites)
    book = run.report.book
    return Observation(
        model=entry.name,
        phase=phase,
        frames=size.frames,
        height=size.height,
        width=size.width,
        works=tuple((_bare(work), calls) for work, calls in book.works.items()),
        moved=_moved(run),
        kept=tuple(Kept(convolution.name, convolution.reason) for convolution in run.report.kept),
        taken=len(run.report.taken),
        peak_bytes=run.peak_bytes,
        largest_bytes=run.largest_bytes,
        largest_shape=tuple(run.largest_shape),
        weight_bytes=run.weight_bytes,
        source=f"diffusers {version('diffusers')}",
        operations=_operations(run),
        operations_unfused=_operations(observe_entry(entry, size, phase, rewrites=_UNFUSED)),
        operations_as_is=_operations(observe_entry(entry, size, phase, rewrites=NO_REWRITES)),
    )


def _bare(work: object) -> ObservedConv:
    """What was noted, as data that needs no torch."""
    return ObservedConv(**{field.name: getattr(work, field.name) for field in fields(ObservedConv)})


def _operations(run: MetaRun) -> tuple[tuple[Operation, int], ...]:
    return tuple(operations_of(run.steps).items())


def _moved(run: MetaRun) -> tuple[Moved, ...]:
    times: Counter[str] = Counter()
    for copy, count in run.report.book.copies.items():
        times[copy.kind] += count
    moved = run.report.copied()
    return tuple(Moved(kind, times[kind], moved[kind]) for kind in moved)
