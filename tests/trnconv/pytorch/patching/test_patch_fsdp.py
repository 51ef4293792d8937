"""FSDP2 on two ranks over gloo: a patched model reads its weights while they are whole."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("einops")

from patched_subjects import NAMES
from sharded_weights import trained_under_fsdp, under_fsdp
from three_way import Error

pytestmark = pytest.mark.distributed

# Roundings of float32 are 2**-16 of those of bf16, whose floor is some 0.01: together some 1e-6.
FLOAT32_BOUND = 1e-4
MOST_S = 100


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    from ranks import Ranks

    started = Ranks(2, tmp_path_factory.mktemp("ranks"))
    yield started
    started.end()


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("name", NAMES)
def test_sharded_weights(ranks, name, order):
    for expected, ours, works in ranks.run(2, under_fsdp, name, order, seconds=MOST_S):
        assert works > 0
        for own, theirs in zip(ours, expected, strict=True):
            assert type(own) is torch.Tensor
            assert Error.of(own, theirs).largest <= FLOAT32_BOUND


@pytest.mark.parametrize("name", ["sdxl", "wan2.1", "wan2.1-official"])
def test_gradients_of_sharded_weights(ranks, name):
    for theirs, ours in ranks.run(2, trained_under_fsdp, name, seconds=MOST_S):
        assert ours.shape == theirs.shape
        assert ours.abs().max() > 0
        assert Error.of(ours, theirs).largest <= FLOAT32_BOUND
