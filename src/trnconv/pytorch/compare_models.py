"""A patched model against the unpatched one: three runs of the same numbers.

exact   the unpatched model in float32
floor   the unpatched model in bf16: what the type costs
ours    the patched model in bf16, its convolutions simulated

Weights and inputs are rounded to bf16 before any of them runs. torch rounds after every operator
and so do we, or less often: both errors are sums of as many roundings, but different ones. Ours may
be twice the floor, and 0.005 (a little more than a step of bf16) for models so shallow that the
floor is next to nothing. A wrong tap or a shifted frame is an error of the size of the values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from trnconv.models import ModelEntry, Size
from trnconv.problem.policy import Policy
from trnconv.pytorch import model_builder
from trnconv.pytorch.lazy.base.stats import PolicedConv
from trnconv.pytorch.lazy.tensors.context import ALL_REWRITES, Rewrites
from trnconv.pytorch.patching import PatchReport, patch_

FACTOR, ALLOWANCE = 2, 0.005
# Some decoders clamp their frames to [-1, 1], where errors would not show: they are made fainter.
_FADED = 0.25


@dataclass(frozen=True)
class Error:
    """Relative to what it is an error of."""

    rms: float
    largest: float


@dataclass(frozen=True, kw_only=True)
class ModelVerdict:
    """Whether a patched model is as near as the unpatched one in bf16, nearly."""

    ours: Error
    floor: Error
    outputs: int
    patched: int  # convolutions on our kernels
    left_to_torch: int
    works: tuple[tuple[PolicedConv, int], ...] = ()  # what was called, and how often

    @property
    def passed(self) -> bool:
        """Both errors within twice the floor and the allowance."""
        pairs = ((self.ours.rms, self.floor.rms), (self.ours.largest, self.floor.largest))
        return all(own <= FACTOR * least + ALLOWANCE for own, least in pairs)


@dataclass(frozen=True)
class ModelRun:
    """One encode or decode of a registered model with random weights."""

    entry: ModelEntry
    phase: str
    size: Size
    reduced: bool  # the narrow and shallow configuration, with every kind of layer
    seed: int = 0  # of weights and inputs


@dataclass(frozen=True)
class Unpatched:
    """What goes in, and what comes out without us."""

    given: torch.Tensor
    exact: torch.Tensor
    floor: torch.Tensor


def verify_model(
    entry: ModelEntry, phase: str, accuracy: str, size: Size | None = None
) -> ModelVerdict:
    """The reduced model of the registry: every kind of layer, narrow and shallow."""
    subject = ModelRun(entry, phase, entry.tiny if size is None else size, reduced=True)
    return verdict(subject, run_unpatched(subject), accuracy)


def run_unpatched(subject: ModelRun) -> Unpatched:
    """The model as it is, in float32 and in bf16."""
    given = _example(subject)
    exact, _ = _run(subject, given, torch.float32)
    floor, _ = _run(subject, given, torch.bfloat16)
    return Unpatched(given, exact, floor)


def verdict(
    subject: ModelRun,
    without: Unpatched,
    accuracy: str | Policy,
    rewrites: Rewrites = ALL_REWRITES,
) -> ModelVerdict:
    """The patched model, held against what the unpatched one made of the same input."""
    ours, report = _run(subject, without.given, torch.bfloat16, accuracy, rewrites)
    assert report is not None
    return ModelVerdict(
        ours=_error(ours, without.exact),
        floor=_error(without.floor, without.exact),
        outputs=without.exact.numel(),
        patched=len(report.patched),
        left_to_torch=len(report.left_to_torch),
        works=tuple(report.stats.works.items()),
    )


def _example(subject: ModelRun) -> torch.Tensor:
    entry, size = subject.entry, subject.size
    made = (
        model_builder.example_video(entry, size, seed=subject.seed)
        if subject.phase == "encode"
        else model_builder.example_latent(entry, size, reduced=subject.reduced, seed=subject.seed)
    )
    return made.to(torch.bfloat16).float()


def _run(
    subject: ModelRun,
    given: torch.Tensor,
    dtype: torch.dtype,
    accuracy: str | Policy | None = None,
    rewrites: Rewrites = ALL_REWRITES,
) -> tuple[torch.Tensor, PatchReport | None]:
    """One encode or decode, patched if an accuracy is given."""
    entry = subject.entry
    model = model_builder.build(
        entry, reduced=subject.reduced, seed=subject.seed, dtype=torch.bfloat16
    )
    last = getattr(model.decoder, "conv_out", None)
    with torch.no_grad(), _WidePools():
        for parameter in () if last is None else last.parameters():
            parameter.mul_(_FADED)
        model = torch.nn.Module.to(model, dtype=dtype)
        report = None
        if accuracy:
            report = patch_(model, accuracy=accuracy, backend="nkisim", rewrites=rewrites)
        run = model_builder.encode if subject.phase == "encode" else model_builder.decode
        return run(model, entry, given.to(dtype)), report


class _WidePools(TorchFunctionMode):
    """Averages over volumes in float32, rounded once: torch's CPU has none in bf16."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options = dict(kwargs or {})
        if func is torch.nn.functional.avg_pool3d and args[0].dtype == torch.bfloat16:
            return func(args[0].float(), *args[1:], **options).to(torch.bfloat16)
        return func(*args, **options)


def _error(y: torch.Tensor, exact: torch.Tensor) -> Error:
    difference, scale = y.double() - exact.double(), exact.double()
    rms = difference.square().mean().sqrt() / scale.square().mean().sqrt()
    return Error(rms.item(), (difference.abs().max() / scale.abs().max()).item())
