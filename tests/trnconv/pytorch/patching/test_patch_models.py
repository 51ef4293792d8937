"""Every autoencoder of the registry, patched, against itself: every convolution ours, and right.

`tests/support/three_way.py` says what is measured, and where the bound comes from.
"""

import pytest

torch = pytest.importorskip("torch")

from patched_runs import Patched, Unpatched
from three_way import Error, example, rounded_model, run
from trnconv.models import Size, find, models

pytestmark = pytest.mark.diffusers

PHASES = [(entry, phase) for entry in models() for phase in entry.phases]
# Enough kinds of padding, caching and resampling to meet every branch; bf16 hides small mistakes.
IN_FLOAT32 = ("wan2.1", "wan2.2-5b", "cogvideox", "hunyuanvideo", "ltx-2", "cosmos1.0", "svd")
# Roundings of float32 are 2**-16 of those of bf16, whose floor is some 0.01: together some 1e-6.
FLOAT32_BOUND = 1e-4
# The smallest clips with two chunks in time, for all channels.
FULL_WIDTH = {
    ("wan2.1", "encode"): Size("", 5, 16, 16),
    ("wan2.1", "decode"): Size("", 5, 16, 16),
    ("cogvideox", "encode"): Size("", 17, 16, 16),
    ("cogvideox", "decode"): Size("", 17, 16, 16),
    ("hunyuanvideo", "encode"): Size("", 17, 8, 16),
    ("hunyuanvideo", "decode"): Size("", 17, 16, 8),
}
# Roundings alone stay far below. torch's own strided bf16 convolutions do not, at some sizes: with
# one column of outputs, oneDNN's are off by as much as the values.
MOST_OF_A_FLOOR = 0.1


def name_of(case):
    return case.name if hasattr(case, "diffusers_class") else str(case)


def of_every_phase(function):
    return pytest.mark.parametrize(("entry", "phase"), PHASES, ids=name_of)(function)


@pytest.fixture(autouse=True)
def what_torch_lacks_in_bf16(monkeypatch):
    """Pooling in float32, which torch's CPU has not in bf16; noise of one stream for all types."""
    pool, randn = torch.nn.functional.avg_pool3d, torch.randn

    def pooled(x, *args, **options):
        return pool(x.float(), *args, **options).to(x.dtype)

    def drawn(*shape, dtype=torch.float32, **options):
        return randn(*shape, dtype=torch.float32, **options).to(dtype)

    monkeypatch.setattr(torch.nn.functional, "avg_pool3d", pooled)
    monkeypatch.setattr(torch, "randn", drawn)


def calling(entry, phase, given):
    return lambda model: run(model, entry, phase, given)


def errors_of_three(entry, phase, size, *, reduced):
    """(floor, ours, the exact result), after all else was checked."""
    x = example(entry, phase, size, reduced=reduced)
    exact = run(rounded_model(entry, torch.float32, reduced=reduced), entry, phase, x)
    model = rounded_model(entry, torch.bfloat16, reduced=reduced)
    call = calling(entry, phase, x)
    floor = Unpatched(model, call)
    ours = Patched(model, call)
    ours.require_every_convolution(floor)
    assert ours.y.dtype == torch.bfloat16
    assert ours.y.shape == exact.shape
    lowest = Error.of(floor.y, exact)
    assert lowest.rms < MOST_OF_A_FLOOR, "torch's own bf16 run is wrong: take another size"
    return lowest, Error.of(ours.y, exact), exact


@of_every_phase
def test_a_patched_model_is_as_exact_as_bf16(entry, phase):
    floor, ours, exact = errors_of_three(entry, phase, entry.tiny, reduced=True)
    assert exact.abs().max() != 1, "clamped values would hide errors"
    assert ours.within(floor), f"floor {floor}, ours {ours}"


@pytest.mark.parametrize("phase", ["encode", "decode"])
@pytest.mark.parametrize("name", IN_FLOAT32)
def test_a_patched_model_in_float32(name, phase):
    entry = find(name)
    x = example(entry, phase, entry.tiny, reduced=True)
    model = rounded_model(entry, torch.float32, reduced=True)
    call = calling(entry, phase, x)
    theirs = Unpatched(model, call)
    ours = Patched(model, call)
    ours.require_every_convolution(theirs)
    error = Error.of(ours.y, theirs.y)
    assert 0 < error.largest <= FLOAT32_BOUND, error


@pytest.mark.slow
@pytest.mark.parametrize(("name", "phase"), FULL_WIDTH)
def test_all_channels_of_a_production_model(name, phase):
    floor, ours, exact = errors_of_three(find(name), phase, FULL_WIDTH[name, phase], reduced=False)
    assert exact.abs().max() != 1
    assert ours.within(floor), f"floor {floor}, ours {ours}"


def test_the_bound_would_notice():
    """Mistakes of the kind that patching could make, and a model that is merely different."""
    entry = find("wan2.1")
    x = example(entry, "decode", entry.tiny, reduced=True)
    model = rounded_model(entry, torch.float32, reduced=True)
    exact = run(model, entry, "decode", x)
    floor = Error.of(
        run(rounded_model(entry, torch.bfloat16, reduced=True), entry, "decode", x), exact
    )
    assert floor.within(floor)
    assert not Error.of(torch.roll(exact, 1, dims=2), exact).within(floor)
    assert not Error.of(torch.roll(exact, 1, dims=4), exact).within(floor)
    model.decoder.mid_block.resnets[0].conv1.bias.zero_()
    assert not Error.of(run(model, entry, "decode", x), exact).within(floor)
