"""What a model's convolutions would take, without its weights: it runs on the meta device.

Only convolutions have a modelled time, with the norms that go into them. Of everything else the
model does, the data it moves (padding, concatenation, upsampling, caches) is counted in bytes, and
other norms, activations, attention and launches are left out (`trnconv.model_plan` has them).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch

from nkisim.machine import Machine
from trnconv.errors import PlanError, UnsupportedError
from trnconv.fused_ops.refusal import has_kernels
from trnconv.models import ModelEntry, Size
from trnconv.problem.conv_problem import ConvProblem, without_norm
from trnconv.problem.cores import cores_of
from trnconv.problem.policy import BF16, Policy, policy_of
from trnconv.problem.prologue import PLAIN_PROLOGUE
from trnconv.pytorch import model_builder
from trnconv.pytorch.lazy.base.stats import PolicedConv
from trnconv.pytorch.lazy.convolutions.modelled_time import is_normed_faster
from trnconv.pytorch.lazy.tensors.context import ALL_REWRITES, Rewrites
from trnconv.pytorch.live_memory import LiveMemory
from trnconv.pytorch.patching import PatchReport, patched
from trnconv.pytorch.step_log import StepLog
from trnconv.runtime.graph import Ask, price_graph
from trnconv.runtime.pricing import Price, price
from trnconv.traces import graphs_of
from trnconv.traces.step import Step

_Phase = Callable[[torch.nn.Module, ModelEntry, torch.Tensor], torch.Tensor]
_PRICES = 10_000  # distinct convolutions of a process


@dataclass(frozen=True)
class MetaRun:
    """What a model did on the meta device."""

    report: PatchReport
    peak_bytes: int  # of activations and caches alive at once
    largest_bytes: int
    largest_shape: tuple[int, ...]
    weight_bytes: int
    steps: tuple[Step, ...]  # every operator that ran, in order


@dataclass(frozen=True)
class Clips:
    """What a model gets: so many clips, in a type."""

    batch: int = 1
    dtype: torch.dtype = torch.bfloat16


ONE_CLIP = Clips()


@dataclass(frozen=True)
class EstimatedLayer:
    """Equal convolutions of one module, and what one of them costs."""

    work: PolicedConv
    calls: int
    price: Price

    @property
    def ns(self) -> float:
        """All calls together."""
        return self.calls * self.price.ns


@dataclass(frozen=True)
class Estimate:
    """A run with every convolution priced. Modelled, machine and reading as given."""

    run: MetaRun
    machine: Machine
    cores: int  # of a launch
    layers: tuple[EstimatedLayer, ...]
    instructions: int  # static, of the longest graph

    @property
    def seconds(self) -> float:
        """All convolutions one after the other."""
        return sum(layer.ns for layer in self.layers) / 1e9

    @property
    def convolution_bytes(self) -> int:
        """HBM traffic of the convolutions."""
        return sum(layer.calls * layer.price.hbm_bytes for layer in self.layers)

    @property
    def copied_bytes(self) -> int:
        """HBM traffic of padding, concatenation, upsampling and caches, read and written."""
        stats = self.run.report.stats
        return sum(copy.moved_bytes * times for copy, times in stats.copies.items())

    @property
    def calls(self) -> int:
        """Convolutions called."""
        return sum(layer.calls for layer in self.layers)


def run_on_meta(
    model: torch.nn.Module,
    call: Callable[[torch.nn.Module], Any],
    *,
    rewrites: Rewrites = ALL_REWRITES,
    reproducible: bool = False,
    accuracy: str | Policy = BF16,
) -> MetaRun:
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
        StepLog(report.stats) as log,
    ):
        call(model)
    return MetaRun(
        report,
        memory.peak_bytes,
        memory.largest_bytes,
        memory.largest_shape,
        sum(parameter.nbytes for parameter in model.parameters()),
        tuple(log.steps),
    )


def estimate(
    run: MetaRun,
    machine: Machine,
    *,
    simulate: bool = False,
    accuracy: str | Policy | None = None,
    cores: int | None = None,
) -> Estimate:
    """Price every distinct convolution of a run, such that chunks fit one graph each if they can.

    `accuracy` replaces the policy that the model was patched with; `cores` are those of a
    launch, None as many as the machine's has. What HBM does not hold has a price as well: the run
    says how large its tensors are.
    """
    launched = cores_of(machine, cores)
    policy = None if accuracy is None else policy_of(accuracy)

    def asked(work: PolicedConv) -> Ask:
        return lambda budget: _price(work.problem(machine, budget, policy), simulate, launched)

    layers: dict[tuple[PolicedConv, Price], int] = {}
    longest = 0
    for graph in graphs_of(list(run.report.stats.works.items())):
        prices = price_graph([(asked(work), calls) for work, calls in graph.works])
        counted = list(zip(graph.works, prices, strict=True))
        longest = max(
            longest, sum(calls * layer_price.instructions for (_, calls), layer_price in counted)
        )
        for (work, calls), layer_price in counted:
            layers[work, layer_price] = layers.get((work, layer_price), 0) + graph.launches * calls
    every = tuple(
        EstimatedLayer(work, calls, layer_price) for (work, layer_price), calls in layers.items()
    )
    return Estimate(run, machine, launched, every, longest)


@lru_cache(_PRICES)
def _price(problem: ConvProblem, simulate: bool, cores: int) -> Price:  # noqa: FBT001 (a key)
    """Without the norm that it was traced with, where no kernel takes that or it is slower."""
    if not is_normed_faster(problem, cores):
        problem = without_norm(problem)
    try:
        return price(problem, simulate=simulate, cores=cores, beyond_hbm=True)
    except PlanError:
        if not problem.prologue.scaled:
            raise
    plain = replace(problem, prologue=PLAIN_PROLOGUE)
    return price(plain, simulate=simulate, cores=cores, beyond_hbm=True)


def rewrites_on(machine: Machine) -> Rewrites:
    """What a patched model does there: norms have no kernels on every machine."""
    has = has_kernels(machine)
    return replace(ALL_REWRITES, fuse_norms=has, fuse_attention=has)


def run_entry_on_meta(
    entry: ModelEntry,
    size: Size,
    phase: str,
    *,
    rewrites: Rewrites = ALL_REWRITES,
    accuracy: str | Policy = BF16,
    clips: Clips = ONE_CLIP,
) -> MetaRun:
    """One encode or decode of so many clips of a size by a registered model."""
    dtype = clips.dtype
    model = model_builder.build(entry, device="meta", dtype=dtype)
    if phase == "decode":
        given = model_builder.example_latent(entry, size, device="meta", dtype=dtype)
        run: _Phase = model_builder.decode
    else:
        given = model_builder.example_video(entry, size, device="meta", dtype=dtype)
        run = model_builder.encode
    every = given.new_empty((clips.batch, *given.shape[1:]))
    return run_on_meta(
        model,
        lambda it: run(it, entry, every),
        rewrites=rewrites,
        accuracy=accuracy,
    )
