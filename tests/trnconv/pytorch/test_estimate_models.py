"""Estimates of whole models, on the meta device: what is counted, and what the rewrites win."""

from collections import Counter

import pytest

torch = pytest.importorskip("torch")

from nkisim.machine import TRN2
from recorded_convolutions import Recorder
from trnconv.errors import UnsupportedError
from trnconv.model_plan import operation_plans
from trnconv.models import find, models
from trnconv.pytorch import model_builder
from trnconv.pytorch.estimate import estimate, run_entry_on_meta, run_on_meta
from trnconv.pytorch.lazy.tensors.context import ALL_REWRITES, NO_REWRITES
from trnconv.traces.groups import operations_of

pytestmark = pytest.mark.diffusers

PHASES = [(entry, phase) for entry in models() for phase in entry.phases]
TB = 1e12
# CogVideoX's decoder: two norms in each of 2 + 4 * 4 resnets and one at the end; 13 latent frames
# are 3 + 5 * 2.
CONDITIONED_NORMS = 37
CHUNKS = 6


def recorded(entry, phase, size):
    """The convolutions of the unpatched model."""
    model = model_builder.build(entry, device="meta", dtype=torch.bfloat16)
    made = {"encode": model_builder.example_video, "decode": model_builder.example_latent}[phase]
    given = made(entry, size, device="meta", dtype=torch.bfloat16)
    with torch.no_grad(), Recorder() as recorder:
        {"encode": model_builder.encode, "decode": model_builder.decode}[phase](model, entry, given)
    return recorder


def total(works, number):
    return sum(calls * number(work) for work, calls in works.items())


@pytest.mark.parametrize(
    ("entry", "phase"), PHASES, ids=lambda case: getattr(case, "name", None) or str(case)
)
def test_every_convolution_is_counted(entry, phase):
    expected = recorded(entry, phase, entry.tiny)
    run = run_entry_on_meta(entry, entry.tiny, phase, rewrites=NO_REWRITES)
    works = run.report.stats.works
    assert sum(works.values()) == len(expected.calls)
    assert total(works, lambda work: work.shape.macs()) == expected.macs
    assert not run.report.stats.left_to_torch
    rewritten = run_entry_on_meta(entry, entry.tiny, phase).report.stats
    assert rewritten.calls == len(expected.calls)
    assert total(rewritten.works, lambda work: work.shape.macs()) <= expected.macs
    assert not rewritten.repeated


def test_an_estimate_adds_up_its_layers():
    entry = find("wan2.1")
    run = run_entry_on_meta(entry, entry.tiny, "decode")
    cost = estimate(run, TRN2, cores=1)
    assert cost.calls == sum(run.report.stats.works.values())
    assert cost.seconds == pytest.approx(sum(one.calls * one.price.ns for one in cost.layers) / 1e9)
    assert cost.convolution_bytes > 0
    names = [entry.name for entry in run.report.entries]
    ran = {layer.work.module for layer in cost.layers}
    assert {name for name in names if name.startswith(("decoder", "post_quant"))} == ran


def test_weights_are_not_needed_and_not_taken():
    entry = find("sdxl")
    model = model_builder.build(entry, reduced=True)
    with pytest.raises(UnsupportedError, match="meta device"):
        run_on_meta(model, lambda _: None)


def test_memory_is_that_of_tensors_alive_at_once():
    entry = find("sdxl")
    run = run_entry_on_meta(entry, entry.size("1024x1024"), "decode", rewrites=NO_REWRITES)
    size = entry.size("1024x1024")
    # The last level has 128 channels at full size; a resnet holds its input and what it computes.
    level = 2 * 128 * size.height * size.width
    assert run.largest_bytes >= level
    assert 2 * level <= run.peak_bytes
    assert run.weight_bytes == 2 * sum(
        parameter.numel() for parameter in model_builder.build(entry, device="meta").parameters()
    )


def copied(run, *kinds):
    moved = Counter()
    for copy, times in run.report.stats.copies.items():
        moved[copy.kind] += times * copy.moved_bytes
    return sum(moved[kind] for kind in kinds)


@pytest.mark.slow
def test_the_copies_of_wan_are_gone():
    entry = find("wan2.1")
    as_it_is, ours = (
        copied(
            run_entry_on_meta(entry, entry.size("720p81"), "decode", rewrites=flags), "pad", "cat"
        )
        for flags in (NO_REWRITES, ALL_REWRITES)
    )
    assert 0.9 * TB <= as_it_is <= 1.05 * TB
    assert ours < 0.02 * as_it_is


def runs(name):
    """Of a decode at production size, as it is and with the rewrites."""
    entry = find(name)
    return [
        run_entry_on_meta(entry, entry.production, "decode", rewrites=flags)
        for flags in (NO_REWRITES, ALL_REWRITES)
    ]


def whole_seconds(run):
    """Convolutions, and one kernel for each operation besides."""
    besides = operation_plans(operations_of(run.steps).items(), TRN2, 1)
    return estimate(run, TRN2, cores=1).seconds + sum(plan.ns for plan in besides) / 1e9


@pytest.mark.slow
@pytest.mark.parametrize(("name", "most"), [("hunyuanvideo", 0.83), ("wan2.2-5b", 0.94)])
def test_the_rewrites_make_decoding_faster(name, most):
    # Of direct kernels on both sides: fast ones do fewer products of what rewrites would save.
    as_it_is, ours = (estimate(run, TRN2, cores=1, accuracy="direct") for run in runs(name))
    assert ours.calls == as_it_is.calls
    assert ours.seconds <= most * as_it_is.seconds


@pytest.mark.slow
def test_conditioning_is_computed_at_the_size_of_the_latent():
    # conv_y and conv_b of CogVideoX's norms are pointwise, so they run before the latent is
    # upsampled; the kernel that multiplies and adds their results reads each as often as it has to.
    # What is upsampled still are the frames between levels.
    as_it_is, ours = runs("cogvideox")
    own = {
        work: calls
        for work, calls in ours.report.stats.works.items()
        if {"conv_y", "conv_b"} & set(work.module.split("."))
    }
    assert sum(own.values()) == 2 * CONDITIONED_NORMS * CHUNKS
    assert {work.shape.size[1:] for work in own} == {(60, 90)}
    kinds = Counter(step.name for step in ours.steps)
    assert kinds["modulation"] == CONDITIONED_NORMS * CHUNKS
    assert copied(ours, "upsample") < 0.4 * copied(as_it_is, "upsample")
    assert whole_seconds(ours) <= 0.55 * whole_seconds(as_it_is)
