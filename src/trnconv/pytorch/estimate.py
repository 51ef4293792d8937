"""What a model's convolutions would take, without its weights: it runs on the meta device.

Only convolutions have a modelled time. Of everything else the model does, the data it moves
(padding, concatenation, upsampling, caches) is counted in bytes, and norms, activations that no
convolution took over, attention and launches are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from nkisim.machine import Machine
from trnconv.errors import UnsupportedError
from trnconv.models import ModelEntry, Size
from trnconv.plan.accuracy import BF16, Policy
from trnconv.plan.choose import DEFAULT_BUDGET
from trnconv.plan.question import Question
from trnconv.pytorch import building
from trnconv.pytorch.lazy.context import ALL_REWRITES, Rewrites
from trnconv.pytorch.lazy.noted import Work
from trnconv.pytorch.live_memory import LiveMemory
from trnconv.pytorch.patching import PatchReport, patched
from trnconv.runtime.pricing import Price, price

_Phase = Callable[[torch.nn.Module, ModelEntry, torch.Tensor], torch.Tensor]
_LIMITS = (DEFAULT_BUDGET, 12_000, 8_000, 6_000)  # of a launch, tried in turn
_PRICES = 10_000  # distinct convolutions of a process
GRAPH_INSTRUCTIONS = 5_000_000  # static; above it the compiler gives up (NCC_EBVF030)


@dataclass(frozen=True)
class Run:
    """What a model did on the meta device."""

    report: PatchReport
    peak_bytes: int  # of activations and caches alive at once
    largest_bytes: int
    largest_shape: tuple[int, ...]
    weight_bytes: int


@dataclass(frozen=True)
class Layer:
    """Equal convolutions of one module, and what one of them costs."""

    work: Work
    calls: int
    price: Price

    @property
    def ns(self) -> float:
        """All calls together."""
        return self.calls * self.price.ns


@dataclass(frozen=True)
class Estimate:
    """A run with every convolution priced, on one core. Modelled, machine and reading as given."""

    run: Run
    machine: Machine
    layers: tuple[Layer, ...]

    @property
    def seconds(self) -> float:
        """All convolutions one after the other."""
        return sum(layer.ns for layer in self.layers) / 1e9

    @property
    def instructions(self) -> int:
        """Static instructions of all calls, as one graph would have."""
        return sum(layer.calls * layer.price.instructions for layer in self.layers)

    @property
    def convolution_bytes(self) -> int:
        """HBM traffic of the convolutions."""
        return sum(layer.calls * layer.price.hbm_bytes for layer in self.layers)

    @property
    def copied_bytes(self) -> int:
        """HBM traffic of padding, concatenation, upsampling and caches, read and written."""
        book = self.run.report.book
        return sum(copy.moved_bytes * times for copy, times in book.copies.items())

    @property
    def calls(self) -> int:
        """Convolutions called."""
        return sum(layer.calls for layer in self.layers)


def observe(
    model: torch.nn.Module,
    call: Callable[[torch.nn.Module], Any],
    *,
    rewrites: Rewrites = ALL_REWRITES,
    reproducible: bool = False,
    accuracy: str | Policy = BF16,
) -> Run:
    """Run `call(model)` on the meta device, and note what it does."""
    if any(not parameter.is_meta for parameter in model.parameters()):
        raise UnsupportedError(
            "a model with weights: build it on the meta device, with torch.device('meta')."
        )
    memory = LiveMemory()
    with (
        torch.no_grad(),
        patched(model, rewrites=rewrites, reproducible=reproducible, accuracy=accuracy) as report,
        memory,
    ):
        call(model)
    return Run(
        report,
        memory.peak_bytes,
        memory.largest_bytes,
        memory.largest_shape,
        sum(parameter.nbytes for parameter in model.parameters()),
    )


def estimate(run: Run, machine: Machine, *, simulate: bool = False) -> Estimate:
    """Price every distinct convolution of a run, within a graph's instructions.

    The more instructions a launch may have, the less it loses to hardware loops. Every layer gets
    its fastest plan, and while the graph is too long, the layer that loses least a shorter one.
    """
    works = list(run.report.book.works.items())
    share = GRAPH_INSTRUCTIONS // max(1, sum(calls for _, calls in works))
    limits = sorted({*_LIMITS, min(DEFAULT_BUDGET, share)}, reverse=True)
    taken = [_price(work.question(machine, limits[0]), simulate=simulate) for work, _ in works]
    if _total(taken, works) > GRAPH_INSTRUCTIONS:
        others = [
            [_price(work.question(machine, limit), simulate=simulate) for limit in limits[1:]]
            for work, _ in works
        ]
        taken = _shortened(taken, others, works)
    layers = tuple(Layer(work, calls, one) for (work, calls), one in zip(works, taken, strict=True))
    return Estimate(run, machine, layers)


def _total(prices: list[Price], works: list[tuple[Work, int]]) -> int:
    counted = zip(prices, works, strict=True)
    return sum(calls * one.instructions for one, (_, calls) in counted)


def _shortened(
    taken: list[Price], others: list[list[Price]], works: list[tuple[Work, int]]
) -> list[Price]:
    """Shorter programs where an instruction saved costs least time, until the graph fits."""
    taken = list(taken)
    saved_most = [
        (max(0.0, other.ns - one.ns) / (one.instructions - other.instructions), at, other)
        for at, (one, choices) in enumerate(zip(taken, others, strict=True))
        for other in choices
        if other.instructions < one.instructions
    ]
    for _, at, other in sorted(saved_most, key=lambda each: each[0]):
        if _total(taken, works) <= GRAPH_INSTRUCTIONS:
            break
        if other.instructions < taken[at].instructions:
            taken[at] = other
    return taken


@lru_cache(_PRICES)
def _price(question: Question, *, simulate: bool) -> Price:
    return price(question, simulate=simulate)


def observe_entry(
    entry: ModelEntry,
    size: Size,
    phase: str,
    *,
    rewrites: Rewrites = ALL_REWRITES,
    reproducible: bool = False,
    accuracy: str | Policy = BF16,
) -> Run:
    """One encode or decode of a registered model at a size, in bf16."""
    model = building.build(entry, device="meta", dtype=torch.bfloat16)
    dtype = torch.bfloat16
    if phase == "decode":
        given = building.example_latent(entry, size, device="meta", dtype=dtype)
        run: _Phase = building.decode
    else:
        given = building.example_video(entry, size, device="meta", dtype=dtype)
        run = building.encode
    return observe(
        model,
        lambda it: run(it, entry, given),
        rewrites=rewrites,
        reproducible=reproducible,
        accuracy=accuracy,
    )
