"""LiveMemory: storages are counted once, while somebody has them, also on the meta device."""

import pytest

torch = pytest.importorskip("torch")

from trnconv.pytorch.live_memory import LiveMemory

pytestmark = pytest.mark.torch

DEVICES = pytest.mark.parametrize("device", ["cpu", "meta"])
BYTES = 4 * 100


def hundred(device):
    return torch.zeros(10, 10, device=device)


@DEVICES
def test_a_tensor_is_counted_until_it_is_freed(device):
    with LiveMemory() as memory:
        one = hundred(device)
        assert memory.live_bytes == BYTES
        two = one + 1
        assert memory.live_bytes == 2 * BYTES
        del one
        assert memory.live_bytes == BYTES
        del two
        assert memory.live_bytes == 0
    assert memory.peak_bytes == 2 * BYTES


@DEVICES
def test_views_and_changes_in_place_are_not_counted(device):
    with LiveMemory() as memory:
        one = hundred(device)
        views = [one.t(), one[2:], one.reshape(-1), one.add_(1)]
        assert memory.live_bytes == BYTES
        del one
        assert memory.live_bytes == BYTES
        del views
        assert memory.live_bytes == 0


@DEVICES
def test_what_was_there_before_is_not_counted(device):
    before = hundred(device)
    with LiveMemory() as memory:
        after = before * 2
        assert memory.live_bytes == after.nbytes


@DEVICES
def test_the_largest_tensor_and_the_peak_are_remembered(device):
    with LiveMemory() as memory:
        small = torch.zeros(3, device=device, dtype=torch.bfloat16)
        large = torch.zeros(20, 30, device=device)
        del large
        torch.zeros(5, device=device)
    assert (memory.largest_bytes, memory.largest_shape) == (4 * 600, (20, 30))
    assert memory.peak_bytes == small.nbytes + 4 * 600


@DEVICES
def test_many_outputs_of_one_operator(device):
    with LiveMemory() as memory:
        values, places = hundred(device).sort()
        assert memory.live_bytes == values.nbytes + places.nbytes
