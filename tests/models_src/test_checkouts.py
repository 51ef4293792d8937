"""Autoencoders of other repositories as they are written, patched: MODELS_SRC=... -m models_src."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("einops")

from model_checkouts import CHECKOUTS, SCALE
from patched_runs import CONVOLUTIONS, Patched, Unpatched
from three_way import Error
from trnconv.pytorch import patch_

pytestmark = pytest.mark.models_src

# Roundings of float32 are 2**-16 of those of bf16, whose floor is some 0.01: together some 1e-6.
FLOAT32_BOUND = 1e-4
CASES = [(name, phase) for name, checkout in CHECKOUTS.items() for phase in checkout.calls]
every_case = pytest.mark.parametrize(("name", "phase"), CASES)


@every_case
def test_a_patched_model_is_as_exact_as_bf16(name, phase):
    checkout = CHECKOUTS[name]
    exact = checkout.call(phase, checkout.model())
    model = checkout.model(torch.bfloat16)
    floor = Unpatched(model, lambda model: checkout.call(phase, model))
    ours = Patched(model, lambda model: checkout.call(phase, model))
    ours.require_every_convolution(floor)
    lowest, error = Error.of(floor.y, exact), Error.of(ours.y, exact)
    assert type(ours.y) is torch.Tensor
    assert error.within(lowest), f"floor {lowest}, ours {error}"


@every_case
def test_a_patched_model_in_float32(name, phase):
    checkout = CHECKOUTS[name]
    model = checkout.model()
    theirs = Unpatched(model, lambda model: checkout.call(phase, model))
    ours = Patched(model, lambda model: checkout.call(phase, model), backend="torch")
    assert ours.report.kept == ()
    assert sum(ours.report.book.works.values()) == theirs.calls > 0
    assert Error.of(ours.y, theirs.y).largest <= FLOAT32_BOUND


def test_every_convolution_of_wan_in_full_width():
    """The official file as published: 96 channels, 16 latents; shapes only."""
    module = CHECKOUTS["Wan2.1"].module()
    with torch.device("meta"):
        options = {"dim": 96, "z_dim": 16, "temperal_downsample": [False, True, True]}
        model = module.WanVAE_(**options).eval().requires_grad_(requires_grad=False)
        count = sum(isinstance(each, CONVOLUTIONS) for each in model.modules())
        report = patch_(model)
        with torch.no_grad():
            frames = model.decode(torch.empty(1, 16, 2, 4, 4), SCALE)
            model.encode(torch.empty(1, 3, 5, 32, 32), SCALE)
    assert frames.shape == (1, 3, 5, 32, 32)
    assert len(report.taken) == count
    assert {work.module for work in report.book.works} == {entry.name for entry in report.taken}
    assert "pad" not in report.copied()
