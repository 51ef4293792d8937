"""What reaches a model's code and its caller lies as torch would leave it, wherever frames are."""

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch.nn import functional

from trnconv.pytorch import patch_

pytestmark = pytest.mark.torch
TOLERANCE = 1e-5  # of sums of 36 products of numbers below 4, in float32


class Images(nn.Module):
    """Frames of one video as images, an operator on them, and then a view."""

    def __init__(self, operator):
        super().__init__()
        self.conv, self.operator = nn.Conv2d(4, 4, 3, padding=1), operator

    def forward(self, x):
        n, t = x.shape[0], x.shape[2]
        made = self.operator(self.conv(x.transpose(1, 2).flatten(0, 1)))
        return made.view(n, t, -1), made


OPERATORS = {
    "nothing": lambda x: x,
    "a product": lambda x: x * 2,
    "two products": lambda x: x * 2 + x,
    "a sum with what lies in order": lambda x: x + torch.ones_like(x),
    "a softmax": lambda x: x.softmax(1),
    "a group norm": lambda x: functional.group_norm(x, 2),
    "a batch norm": lambda x: functional.batch_norm(x, None, None, training=True),
    "a mean": lambda x: x.mean(1, keepdim=True),
    "an average pool": lambda x: functional.avg_pool2d(x, 2),
    "a choice": lambda x: torch.where(x > 0, x, -x),
    "a cast": lambda x: x.double().float(),
    "in place": lambda x: x.mul_(2),
    "an activation in place": lambda x: functional.silu(x, inplace=True),
    "memory like it": torch.zeros_like,
    "a concatenation": lambda x: torch.cat([x, x], 1),
    "a cumulated sum": lambda x: x.cumsum(0),
    "a matrix product": lambda x: x @ x.transpose(-1, -2),
    "padding": lambda x: functional.pad(x, (1, 1, 0, 0), mode="replicate"),
    "two of the frames": lambda x: x[:2] * 1,
    "an index": lambda x: x[[2, 0, 1]],
    "a clone": lambda x: x.clone(),
    "a flip": lambda x: x.flip(0),
}


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
def test_views_after_a_convolution_of_frames_as_images_are_torchs(operator):
    model, x = Images(operator), torch.randn(1, 4, 3, 4, 6)
    patched_model = copy.deepcopy(model)
    patch_(patched_model, backend="torch")
    with torch.no_grad():
        theirs, ours = model(x), patched_model(x)
    for expected, result in zip(theirs, ours, strict=True):
        assert result.stride() == expected.stride()
        assert torch.allclose(result, expected, atol=TOLERANCE)


def test_random_numbers_are_dealt_in_the_order_of_the_unpatched_model():
    model, x = (
        Images(lambda x: functional.dropout(x, 0.5, training=True)),
        torch.randn(1, 4, 3, 4, 6),
    )
    patched_model = copy.deepcopy(model)
    patch_(patched_model, backend="torch")
    results = []
    for run in (model, patched_model):
        torch.manual_seed(3)
        with torch.no_grad():
            results.append(run(x)[1])
    assert torch.equal(results[0] == 0, results[1] == 0)
    assert torch.allclose(*results, atol=TOLERANCE)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("gradients", [False, True])
def test_channels_last_in_channels_last_out_if_torch_does(threads, gradients):
    conv = nn.Conv3d(4, 4, 3, padding=1).requires_grad_(requires_grad=gradients)
    x = torch.randn(1, 4, 3, 4, 6).contiguous(memory_format=torch.channels_last_3d)
    patched_model = nn.Sequential(copy.deepcopy(conv))
    patch_(patched_model, backend="torch")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)  # torch's choice depends on them
    try:
        assert patched_model(x).stride() == conv(x).stride()
    finally:
        torch.set_num_threads(before)
