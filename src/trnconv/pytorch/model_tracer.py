"""What a model does, registered or not, as a ModelTrace: it runs on the meta device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from importlib.metadata import version
from typing import Any

import torch

from trnconv.models import ModelEntry, Size
from trnconv.pytorch.estimate import Clips, MetaRun, run_entry_on_meta, run_on_meta
from trnconv.pytorch.lazy.tensors.context import ALL_REWRITES, NO_REWRITES, Rewrites
from trnconv.traces import LeftToTorch, ModelTrace, Moved, Operation, TracedConv
from trnconv.traces.groups import operations_of

_UNFUSED = replace(ALL_REWRITES, fuse_norms=False, fuse_attention=False, coarse_residuals=False)


@dataclass(frozen=True)
class TraceSubject:
    """What is being traced: a name, a phase, a size, and what with."""

    model: str
    phase: str
    size: tuple[int, int, int]  # frames, height, width
    source: str


def trace_entry(
    entry: ModelEntry,
    size: Size,
    phase: str,
    *,
    rewrites: Rewrites = ALL_REWRITES,
    batch: int = 1,
    dtype: str = "bfloat16",
) -> ModelTrace:
    """One encode or decode, with the tiling its class has by default."""
    clips = Clips(batch, getattr(torch, dtype))
    about = TraceSubject(
        entry.name,
        phase,
        (size.frames, size.height, size.width),
        f"our {entry.own_class}" if entry.own_class else f"diffusers {version('diffusers')}",
    )
    return _traced(
        about,
        lambda how: run_entry_on_meta(entry, size, phase, rewrites=how, clips=clips),
        rewrites,
    )


def trace_model(
    model: torch.nn.Module, call: Callable[[torch.nn.Module], Any], about: TraceSubject
) -> ModelTrace:
    """Any module on the meta device, by a call of it."""
    return _traced(about, lambda how: run_on_meta(model, call, rewrites=how), ALL_REWRITES)


def _traced(
    about: TraceSubject, run_with: Callable[[Rewrites], MetaRun], rewrites: Rewrites
) -> ModelTrace:
    run = run_with(rewrites)
    frames, height, width = about.size
    return ModelTrace(
        model=about.model,
        phase=about.phase,
        frames=frames,
        height=height,
        width=width,
        works=tuple((_bare(work), calls) for work, calls in run.report.stats.works.items()),
        moved=_moved(run),
        left_to_torch=tuple(
            LeftToTorch(convolution.name, convolution.reason)
            for convolution in run.report.left_to_torch
        ),
        patched=len(run.report.patched),
        peak_bytes=run.peak_bytes,
        largest_bytes=run.largest_bytes,
        largest_shape=tuple(run.largest_shape),
        weight_bytes=run.weight_bytes,
        source=about.source,
        operations=_operations(run),
        operations_unfused=_operations(run_with(_UNFUSED)),
        operations_as_is=_operations(run_with(NO_REWRITES)),
    )


def _bare(work: object) -> TracedConv:
    """What was recorded, as data that needs no torch."""
    return TracedConv(**{field.name: getattr(work, field.name) for field in fields(TracedConv)})


def _operations(run: MetaRun) -> tuple[tuple[Operation, int], ...]:
    return tuple(operations_of(run.steps).items())


def _moved(run: MetaRun) -> tuple[Moved, ...]:
    times: Counter[str] = Counter()
    for copy, count in run.report.stats.copies.items():
        times[copy.kind] += count
    moved = run.report.copied()
    return tuple(Moved(kind, times[kind], moved[kind]) for kind in moved)
