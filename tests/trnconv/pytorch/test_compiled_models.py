"""torch.compile and torch.export of patched autoencoders: the unpatched model's values."""

import pytest

torch = pytest.importorskip("torch")

from trnconv.models import find
from trnconv.pytorch import patched
from trnconv.pytorch.building import build

pytestmark = pytest.mark.diffusers

LATENTS = {"sdxl": (4, 6), "wan2.1": (1, 2, 3)}
WAYS = {
    "eager": lambda part, x: torch.compile(part, backend="eager", fullgraph=True)(x),
    "aot_eager": lambda part, x: torch.compile(part, backend="aot_eager", fullgraph=True)(x),
    "export": lambda part, x: torch.export.export(part, (x,)).module()(x),
}


def part_of(name, part):
    """A module of a reduced decoder, and what it is given in a decode."""
    entry = find(name)
    model = build(entry, reduced=True).eval().requires_grad_(requires_grad=False)
    generator = torch.Generator().manual_seed(0)
    latent = torch.randn(1, entry.reduced_latent_channels, *LATENTS[name], generator=generator)
    if part == "decoder":
        return model, model.decoder, latent
    given = []
    hook = model.decoder.mid_block.register_forward_pre_hook(lambda _, args: given.append(args[0]))
    model.decode(latent)
    hook.remove()
    return model, model.decoder.mid_block, given[0]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("part", ["block", "decoder"])
@pytest.mark.parametrize("name", LATENTS)
def test_a_part_of_a_patched_model_in_one_graph(name, part, way):
    model, module, x = part_of(name, part)
    expected = module(x)
    with patched(model, backend="torch"), torch.no_grad():
        torch.testing.assert_close(WAYS[way](module, x), expected)
    torch.compiler.reset()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", LATENTS)
def test_a_compiled_decode(name, backend):
    model, _, latent = part_of(name, "decoder")
    expected = model.decode(latent, return_dict=False)[0]
    with patched(model, backend="torch"), torch.no_grad():
        compiled = torch.compile(lambda z: model.decode(z, return_dict=False)[0], backend=backend)
        torch.testing.assert_close(compiled(latent), expected)
    torch.compiler.reset()
