"""Tiles of a model's own tiling, shared out over ranks: the bits of one rank, and less work."""

import pytest

pytestmark = pytest.mark.distributed
torch = pytest.importorskip("torch")

import sharded_models as ours
from trnconv.errors import UnsupportedError
from trnconv.parallel import Options, share_tiles_


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("wan2.1", "decode"),
        ("wan2.1", "encode"),
        ("cogvideox", "decode"),
        ("hunyuanvideo", "decode"),
        ("hunyuanvideo", "encode"),
    ],
)
def test_shared_tiles_have_the_bits_of_one_rank(ranks, name, phase):
    """Every tile is done once by somebody; blending is the model's own."""
    entry, model, x = ours.tiled(name, phase)
    half, calls = getattr(model, f"{phase}r"), []
    half.register_forward_hook(lambda *_: calls.append(1))
    want = ours.run_phase(entry, model, phase, x)
    got = ranks.run(3, ours.in_tiles, name, phase, False)
    assert all(torch.equal(y, want) for y, _, _ in got)
    done = [count for _, count, _ in got]
    assert sum(done) == len(calls) > 3
    assert min(done) > 0
    assert all(received > 0 for _, _, received in got)


def test_a_patched_model_shares_tiles_too(ranks):
    entry, model, x = ours.tiled("wan2.1", "decode", is_patched=True)
    want = ours.run_phase(entry, model, "decode", x)
    got = ranks.run(2, ours.in_tiles, "wan2.1", "decode", True)
    assert all(torch.equal(y, want) for y, _, _ in got)


def test_what_tiles_cannot_do_is_refused_in_words(ranks):
    _, model, _, _ = ours.given("wan2.1", "decode", torch.float32, (5, 24, 16))
    with pytest.raises(UnsupportedError, match="enable_tiling"):
        share_tiles_(model)
    model.enable_tiling()
    with pytest.raises(UnsupportedError, match="tiles have timeout_s and check_values"):
        share_tiles_(model, options=Options(overlap="never"))
