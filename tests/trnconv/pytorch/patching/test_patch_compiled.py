"""torch.compile and torch.export of patched autoencoders: the unpatched model's values."""

import shutil
from contextlib import nullcontext

import pytest

torch = pytest.importorskip("torch")

from patched_subjects import REGISTERED, Subject
from trnconv.models import find
from trnconv.pytorch import patched
from trnconv.pytorch.model_builder import build

pytestmark = pytest.mark.diffusers

LATENTS = {"sdxl": (4, 6), "wan2.1": (1, 2, 3)}
WAYS = {
    "eager": lambda part, x: torch.compile(part, backend="eager", fullgraph=True)(x),
    "aot_eager": lambda part, x: torch.compile(part, backend="aot_eager", fullgraph=True)(x),
    "inductor": lambda part, x: torch.compile(part, backend="inductor", fullgraph=True)(x),
    "export": lambda part, x: torch.export.export(part, (x,)).module()(x),
}
QUICK = ("eager", "aot_eager", "export")


def part_of(name, part):
    """A module of a reduced decoder, and what it is given in a decode."""
    entry = find(name)
    model = build(entry, reduced=True).eval().requires_grad_(requires_grad=False)
    generator = torch.Generator().manual_seed(0)
    latent = torch.randn(1, entry.reduced_latent_channels, *LATENTS[name], generator=generator)
    if part == "decoder":
        return model, model.decoder, latent
    inputs = []
    hook = model.decoder.mid_block.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    model.decode(latent)
    hook.remove()
    return model, model.decoder.mid_block, inputs[0]


def outcome(way, part, x):
    """A tensor, or torch's refusal in its first words."""
    torch.compiler.reset()
    try:
        return WAYS[way](part, x)
    except RuntimeError as error:
        return str(error)[:40]


def assert_as_unpatched(way, model, part, x):
    """Where torch fails at the model as it is, it fails at the patched one alike."""
    with torch.no_grad():
        expected, theirs = part(x), outcome(way, part, x)
        with patched(model, backend="torch"):
            ours = outcome(way, part, x)
    if isinstance(theirs, str):
        assert ours == theirs
    else:
        torch.testing.assert_close(ours, expected)
    return ours


@pytest.mark.parametrize("way", QUICK)
@pytest.mark.parametrize("part", ["block", "decoder"])
@pytest.mark.parametrize("name", LATENTS)
def test_a_part_of_a_patched_model_in_one_graph(name, part, way):
    assert_as_unpatched(way, *part_of(name, part))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own code in inductor
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
@pytest.mark.parametrize("part", ["block", "decoder"])
@pytest.mark.parametrize("name", LATENTS)
def test_a_part_of_a_patched_model_by_inductor(name, part, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    ours = assert_as_unpatched("inductor", *part_of(name, part))
    assert isinstance(ours, torch.Tensor), ours


@pytest.mark.parametrize("way", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", LATENTS)
def test_a_compiled_decode(name, way):
    model, _, latent = part_of(name, "decoder")
    assert_as_unpatched(way, model, lambda z: model.decode(z, return_dict=False)[0], latent)


@pytest.mark.slow
@pytest.mark.parametrize("name", REGISTERED)
def test_a_compiled_decode_of_every_model(name):
    """Against the unpatched model, compiled: of one, torch makes other values by compiling it."""
    subject = Subject(name)
    model, latent = subject.model(), subject.given("decode")
    frames = []
    with torch.no_grad():
        for is_patched in (False, True):
            torch.compiler.reset()
            with patched(model, backend="torch") if is_patched else nullcontext():
                frames.append(torch.compile(subject.run, backend="eager")(model, "decode", latent))
    torch.testing.assert_close(frames[1], frames[0])
