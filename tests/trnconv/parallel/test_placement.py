"""DTensors in and out of sharded models: shards are bands, and nothing is sent for it."""

import pytest

torch = pytest.importorskip("torch")

import sharded_models as ours
from trnconv.errors import ShapeError
from trnconv.parallel.bands import Bands
from trnconv.parallel.placement import shard_bands

SIZE = (5, 48, 64)  # frames, pixels: 6 x 8 latents


@pytest.mark.torch
@pytest.mark.parametrize(("total", "ranks"), [(8, 2), (7, 3), (5, 4), (6, 6), (9, 2)])
def test_bands_of_shards_are_those_of_torchs_chunks(total, ranks):
    chunks = torch.arange(total).chunk(ranks)
    if len(chunks) < ranks:
        with pytest.raises(ShapeError, match="has none"):
            shard_bands(total, ranks)
        return
    assert shard_bands(total, ranks).sizes() == tuple(map(len, chunks))


@pytest.mark.torch
def test_shards_that_end_inside_of_a_latent_row_are_refused():
    assert shard_bands(48, 2, 8) == Bands((0, 24, 48))
    with pytest.raises(ShapeError, match="multiples of 16"):
        shard_bands(48, 2, 16)


@pytest.mark.distributed
@pytest.mark.parametrize("phase", ["decode", "encode"])
@pytest.mark.parametrize("mesh", [(2, 2), (1, 4)])
def test_a_model_takes_shards_and_gives_shards(ranks, mesh, phase):
    want = ours.alone("wan2.1", phase, torch.float32, SIZE)
    for placed, y, sent in ranks.run(4, ours.as_dtensors, "wan2.1", phase, SIZE, mesh):
        assert placed == "(Shard(dim=3), Shard(dim=4))"
        assert sent == 0
        torch.testing.assert_close(y, want, rtol=1e-4, atol=1e-4)


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("phase", "words"),
    [("decode", "with bounds (0, 24, 40) as a DTensor"), ("encode", "must be multiples of 8")],
)
def test_latents_that_do_not_divide_are_refused_in_words(ranks, phase, words):
    """5 columns of latents on 2 ranks: shards of 40 pixels end inside of one."""
    for text in ranks.run(4, ours.as_dtensors, "wan2.1", phase, (5, 48, 40), (2, 2)):
        assert words in text


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("replicated", "is needed. Call x.redistribute first"),
        ("group", "on the DeviceMesh"),
        ("uneven", "its shards are equal but for the last"),
    ],
)
def test_what_is_no_band_is_refused_in_words(ranks, what, words):
    for text in ranks.run(2, ours.refused_dtensor, what):
        assert text.startswith("ShapeError"), text
        assert words in text
