"""Modules under DistributedDataParallel on two gloo ranks over loopback: torch's very weights."""

import pytest

torch = pytest.importorskip("torch")

from data_parallel import net, stepped, under_ddp, videos
from ranks import Ranks

pytestmark = [pytest.mark.distributed, pytest.mark.training]


class MeanOfTwo(torch.nn.Module):
    """What two ranks minimise together: half of the sum over both videos."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x) / 2


def test_two_ranks_train_as_one_process_of_torch(tmp_path):
    started = Ranks(2, tmp_path)
    try:
        ours = started.run(2, under_ddp)
    finally:
        started.end()
    expected = stepped(MeanOfTwo(net(torch.nn)), videos())
    for own in ours:
        assert all(torch.equal(a, b) for a, b in zip(own, expected, strict=True))
    before = list(net(torch.nn).parameters())
    assert not any(torch.equal(a, b) for a, b in zip(before, expected, strict=True))
