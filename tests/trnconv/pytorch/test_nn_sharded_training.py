"""The training guide's model under FSDP2 on two gloo ranks over loopback, against one process."""

import pytest

torch = pytest.importorskip("torch")

from guide_vae import RANKS, curve_of_one_process, curve_under_fsdp
from ranks import Ranks

pytestmark = [pytest.mark.distributed, pytest.mark.training]

MOST_S = 120


def apart(one, other):
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def test_the_loss_curve_of_shards_is_torchs_within_the_noise_of_seeds(tmp_path):
    """A tenth of what another seed changes; the mean of both ranks is the loss of both videos."""
    started = Ranks(RANKS, tmp_path)
    try:
        found = started.run(RANKS, curve_under_fsdp, 0, seconds=MOST_S)
    finally:
        started.end()
    assert all(kinds == {"DTensor"} for _, kinds in found)
    ours = [sum(losses) / RANKS for losses in zip(*(losses for losses, _ in found), strict=True)]
    theirs, other_seed = curve_of_one_process(torch.nn, 0), curve_of_one_process(torch.nn, 1)
    assert apart(ours, theirs) < apart(other_seed, theirs) / 10
    assert ours[-1] < ours[0]
