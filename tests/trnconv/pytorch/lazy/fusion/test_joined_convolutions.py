"""Convolutions of frames that follow each other run as one; those that do not, do not."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch.nn import functional

from integer_networks import integers, with_integers
from trnconv.pytorch import patched

pytestmark = pytest.mark.torch

CHANNELS = 4


class Cut(nn.Module):
    """A layer on parts of its input."""

    def __init__(self, cut, kernel=3, **options):
        super().__init__()
        self.conv = nn.Conv3d(CHANNELS, CHANNELS, kernel, **options)
        self.cut = cut

    def forward(self, x):
        return self.cut(self.conv, x)


def halved(conv, x):
    """As classes that bound their memory do: the halo is read by both."""
    at, halo = x.shape[2] // 2, conv.kernel_size[0] - 1
    return torch.cat([conv(x[:, :, : at + halo]), conv(x[:, :, at:])], dim=2)


def by_chunks(conv, x):
    parts, before = [], None
    for chunk in x.chunk(3, dim=2):
        known = chunk if before is None else torch.cat([before[:, :, -2:], chunk], dim=2)
        parts.append(conv(known))
        before = known
    return torch.cat(parts, dim=2)


def with_a_cache(conv, x):
    """As KVAE's causal convolution: a cache with what it meets, and the others, in a buffer."""
    padded = functional.pad(x, (1, 1, 1, 1, 0, 0), mode="replicate")
    before = functional.pad(2 - x, (1, 1, 1, 1, 0, 0), mode="replicate")
    cache = before[:, :, -2:].clone()
    out = torch.empty(x.shape)
    out[:, :, :2] = conv(torch.cat([cache, padded[:, :, :2]], dim=2))
    out[:, :, 2:] = conv(padded)
    return out


def with_the_first_frame_again(conv, x):
    padded = functional.pad(x, (1, 1, 1, 1, 0, 0), mode="replicate")
    first = padded[:, :, :1].expand(-1, -1, 2, -1, -1)
    out = torch.empty(x.shape)
    out[:, :, :2] = conv(torch.cat([first, padded[:, :, :2]], dim=2))
    out[:, :, 2:] = conv(padded)
    return out


def frame_by_frame(conv, x):
    out = x.new_zeros(x.shape)
    for at in range(x.shape[2]):
        out[:, :, at : at + 1] = conv(x[:, :, at : at + 1])
    return out


def with_ends(conv, x):
    return functional.relu(halved(conv, x)) + halved(conv, x)


JOINED = {  # what is cut, how often the layer is called, and how often it runs
    "halves": (Cut(halved), 2, 1),
    "halves, strided": (Cut(halved, stride=(2, 1, 1)), 2, 1),
    "halves of planes": (Cut(halved, (1, 3, 3), padding=(0, 1, 1)), 2, 1),
    "halves, dilated in planes": (Cut(halved, 3, dilation=(1, 2, 1)), 2, 1),
    "chunks": (Cut(by_chunks), 3, 1),
    "a cache": (Cut(with_a_cache), 2, 1),
    "the first frame again": (Cut(with_the_first_frame_again), 2, 1),
    "frames": (Cut(frame_by_frame, (1, 3, 3), padding=(0, 1, 1)), 8, 1),
    "twice": (Cut(with_ends), 4, 2),
}


def wrong_halo(conv, x):
    return torch.cat([conv(x[:, :, :5]), conv(x[:, :, 4:])], dim=2)


def reversed_halves(conv, x):
    return torch.cat([conv(x[:, :, 4:]), conv(x[:, :, :6])], dim=2)


def of_another(conv, x):
    return torch.cat([conv(x[:, :, :6]), conv((x + 1)[:, :, 4:])], dim=2)


def with_another_weight(conv, x):
    first = conv(x[:, :, :6])
    return torch.cat([first, functional.conv3d(x[:, :, 4:], conv.weight + 1, conv.bias)], dim=2)


def without_bias(conv, x):
    return torch.cat([conv(x[:, :, :6]), functional.conv3d(x[:, :, 4:], conv.weight)], dim=2)


def padded_between(conv, x):
    first = functional.pad(x[:, :, :6], (0, 0, 0, 0, 0, 1))
    return torch.cat([conv(first), conv(x[:, :, 4:])], dim=2)


def changed_between(conv, x):
    x = x.clone()
    first = conv(x[:, :, :6])
    x[:, :, 4:].add_(1)
    return torch.cat([first, conv(x[:, :, 4:])], dim=2)


def activated_before(conv, x):
    return torch.cat([functional.relu(conv(x[:, :, :6])), conv(x[:, :, 4:])], dim=2)


def the_same_twice(conv, x):
    one = conv(x)
    return torch.cat([one, one], dim=2)


APART = {
    "a wrong halo": wrong_halo,
    "reversed": reversed_halves,
    "of another input": of_another,
    "with another weight": with_another_weight,
    "with a bias and without": without_bias,
    "padded in between": padded_between,
    "changed in between": changed_between,
    "activated before": activated_before,
    "the same twice": the_same_twice,
}


def run(model, frames=8, backend="torch"):
    """Ours and torch's, the same bits; what ran."""
    with_integers(model, seed=1).requires_grad_(requires_grad=False)
    x = integers(1, CHANNELS, frames, 7, 6, most=3, seed=2)
    expected = model(x.clone())
    with torch.no_grad(), patched(model, backend=backend) as report:
        ours = model(x)
    assert torch.equal(ours, expected)
    return report


@pytest.mark.parametrize("name", JOINED)
def test_they_run_as_one(name):
    model, calls, runs = JOINED[name]
    report = run(model)
    assert sum(report.stats.works.values()) == runs
    assert report.stats.calls == calls
    assert not report.stats.repeated


@pytest.mark.parametrize("backend", ["torch", "nkisim"])
@pytest.mark.parametrize("name", ["chunks", "a cache", "the first frame again"])
def test_nothing_is_copied_but_a_cache(name, backend):
    model, _, _ = JOINED[name]
    copied = run(model, backend=backend).copied()
    two_frames = 2 * CHANNELS * 7 * 6 * 4
    assert copied == ({"cache": 2 * two_frames} if name == "a cache" else {})


@pytest.mark.parametrize("name", APART)
def test_what_does_not_follow_runs_apart(name):
    report = run(Cut(APART[name]))
    assert not report.stats.joined
    assert not report.stats.repeated


class KeepsAPart(nn.Module):
    """Who wants a part by itself gets it from the whole."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(CHANNELS, CHANNELS, 3)

    def forward(self, x):
        first, last = self.conv(x[:, :, :6]), self.conv(x[:, :, 4:])
        together = torch.cat([first, last], dim=2)
        return torch.cat([together, last * 2, first + 1], dim=2)


def test_a_part_is_read_from_the_whole():
    report = run(KeepsAPart())
    assert sum(report.stats.works.values()) == 1
    assert not report.stats.repeated
