"""Tensors changed in place: recorded movement has the values, and shares the memory, of torch."""

import copy
import pickle
import random
from functools import partial

import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch.nn import functional

from integer_networks import integers, with_integers
from trnconv.pytorch import patched

pytestmark = pytest.mark.torch

FRAMES = 3
VIEWS = {
    "frames": lambda x: x[:, :, 1:] if x.shape[2] > 1 else x[:, :, :1],
    "last frame": lambda x: x[:, :, -1:],
    "a frame": lambda x: x[:, :, 0][:, :, None],
    "split": lambda x: (
        x.split([1, x.shape[2] - 1], dim=2)[1] if x.shape[2] > 1 else x.chunk(1, 2)[0]
    ),
    "permuted": lambda x: x.permute(0, 2, 1, 3, 4).permute(0, 2, 1, 3, 4),
    "images": lambda x: (
        x.permute(0, 2, 1, 3, 4)
        .reshape(-1, x.shape[1], *x.shape[3:])
        .unflatten(0, (x.shape[0], -1))
        .permute(0, 2, 1, 3, 4)
    ),
    "contiguous": lambda x: x.contiguous(),
    "same type": lambda x: x.to(torch.float32),
    "rows": lambda x: x.narrow(3, 0, 3),
    "unbound": lambda x: x.unbind(2)[0].unsqueeze(2),
}
COPIES = {
    "clone": lambda x: x.clone(),
    "cast": lambda x: x.to(torch.float64).to(torch.float32),
    "cat": lambda x: torch.cat([x, x], dim=2) if x.shape[2] < 5 else torch.cat([x], dim=2),
    "cat of one": lambda x: torch.cat([x], dim=2),
    "pad": lambda x: functional.pad(x, (0, 0, 0, 0, 1, 0)) if x.shape[2] < 5 else x.clone(),
    "pad by nothing": lambda x: functional.pad(x, (0, 0)),
    "repeat once": lambda x: x.repeat(1, 1, 1, 1, 1),
    "upsampled by one": lambda x: functional.interpolate(x, scale_factor=1),
    "interleaved once": lambda x: x.repeat_interleave(1, dim=2),
    "relu": functional.relu,
}
WRITES = {
    "add_": lambda x: x.add_(1),
    "+=": lambda x: x.__iadd__(2),
    "a frame set": lambda x: x.__setitem__((slice(None), slice(None), 0), 5.0),
    "a frame copied": lambda x: x.__setitem__(
        (slice(None), slice(None), slice(0, 1)), x[:, :, -1:] * 2
    ),
    "inplace=True": lambda x: functional.relu(x, inplace=True),
    "out=": lambda x: torch.clamp(x, -4, 4, out=x),
}


class Program(nn.Module):
    """A function of a convolution and some videos."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.conv = nn.Conv3d(2, 2, (3, 1, 1), padding=(1, 0, 0))

    def forward(self, *videos):
        return self.function(self.conv, *videos)


def clips(count=2, batch=1, seed=0):
    return [integers(batch, 2, FRAMES, 4, 5, most=3, seed=seed + at) for at in range(count)]


def assert_the_same(function, videos):
    """Results, arguments, and who shares memory with whom, as torch has it."""
    model = with_integers(Program(function)).requires_grad_(requires_grad=False)
    theirs, ours = ([video.clone() for video in videos] for _ in range(2))
    expected = [*model(*theirs), *theirs]
    with patched(model, backend="torch"):
        results = [*model(*ours), *ours]
    for result, wanted in zip(results, expected, strict=True):
        assert torch.equal(result, wanted)
    assert sharing(results) <= sharing(expected)


def assert_the_same_with_any_write(program):
    """One video and two, changed in every way."""
    for write in WRITES.values():
        for batch in (1, 2):
            assert_the_same(partial(program, write=write), clips(1, batch=batch))


def sharing(tensors):
    """Pairs that share memory."""
    places = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    return {
        (first, second)
        for first in range(len(places))
        for second in range(first)
        if places[first] == places[second]
    }


@pytest.mark.parametrize("copy", COPIES)
def test_a_copy_does_not_show_later_changes(copy):
    def program(conv, x, write):
        copied, convolved = COPIES[copy](x), conv(COPIES[copy](x))
        write(x)
        return copied, convolved, conv(x)

    assert_the_same_with_any_write(program)


@pytest.mark.parametrize("copy", COPIES)
def test_changes_of_a_copy_do_not_show_in_its_origin(copy):
    def program(conv, x, write):
        copied = COPIES[copy](x)
        write(copied)
        return copied, conv(copied), conv(x)

    assert_the_same_with_any_write(program)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("origin", ["given", "clone", "cat", "pad", "convolved"])
def test_a_view_shows_changes_and_is_shown_them(origin, view):
    def program(conv, x, write):
        origins = {"given": lambda x: x, "convolved": conv, **COPIES}
        first, second = origins[origin](x), origins[origin](x)
        seen = VIEWS[view](first)
        write(first)
        write(VIEWS[view](second))
        return first, seen, second, conv(seen), conv(second)

    assert_the_same_with_any_write(program)


def test_a_convolution_that_was_asked_for_reads_before_the_change():
    def program(conv, x, residual):
        fused = conv(x) + residual
        later = conv(torch.cat([x, residual], dim=2))
        x.zero_()
        residual.mul_(2)
        return fused, later, x, residual

    assert_the_same(program, clips())


def test_changes_of_a_result_do_not_show_in_what_was_made_of_it():
    def program(conv, x):
        y = conv(x)
        padded, again = functional.pad(y, (1, 1)), conv(y)
        y += 1
        return y, padded, again

    assert_the_same(program, clips(1))


def test_a_part_of_a_joined_video_changed_by_index():
    def program(conv, x, other):
        joined = torch.cat([x, other], dim=2)
        joined[:, :, 0] *= 2
        joined[:, :, -2:] += x[:, :, :2]
        return joined, conv(joined)

    assert_the_same(program, clips())


def test_a_tensor_of_the_model_changed_by_frames_of_a_lazy_one():
    class Filling(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv3d(2, 2, 1)

        def forward(self, x):
            buffer = torch.zeros(1, 2, 2 * FRAMES, 4, 5)
            before = torch.cat([buffer[:, :, :1], x], dim=2)
            buffer[:, :, :FRAMES] = x
            buffer[:, :, FRAMES:] = self.conv(x)
            return self.conv(buffer), before

    model, (x,) = with_integers(Filling()).requires_grad_(requires_grad=False), clips(1)
    expected = model(x)
    with patched(model, backend="torch"):
        assert all(torch.equal(*pair) for pair in zip(model(x), expected, strict=True))


def test_a_function_that_changes_returns_what_it_was_given():
    def program(_conv, x):
        y = x.clone()
        assert y.add_(1) is y
        return (y,)

    assert_the_same(program, clips(1))


def random_program(seed):
    """Views, copies, convolutions, sums and changes of whatever there is, in any order."""

    def program(conv, *videos):
        choose = random.Random(seed)  # noqa: S311 (reproducible, not secret)
        values = list(videos)
        for _ in range(choose.randint(3, 9)):
            x = choose.choice(values)
            kind = choose.choices(["view", "copy", "conv", "sum", "write"], [7, 5, 3, 1, 4])[0]
            if kind == "write":
                WRITES[choose.choice(list(WRITES))](x)
            elif kind == "conv":
                values.append(conv(x))
            elif kind == "sum":
                values.append(x + choose.choice([y for y in values if y.shape == x.shape]))
            else:
                table = VIEWS if kind == "view" else COPIES
                values.append(table[choose.choice(list(table))](x))
        return values

    return program


@pytest.mark.parametrize("seeds", [range(at, at + 40) for at in range(0, 600, 40)])
def test_random_programs(seeds):
    for seed in seeds:
        assert_the_same(random_program(seed), clips(batch=1 + seed % 2, seed=seed))


LOOKS = {
    "an f-string": lambda x: f"{x}",
    "tolist": lambda x: x.tolist(),
    "data_ptr": lambda x: x.data_ptr() != 0,
    "numpy": lambda x: x.numpy().tolist(),
    "pickle": lambda x: pickle.loads(pickle.dumps(x)).tolist(),  # noqa: S301
    "deepcopy": lambda x: copy.deepcopy(x).tolist(),
    "a convolution": lambda _: None,
}


class GivenMemoryOfAnother(nn.Module):
    """A plain tensor whose memory becomes that of a tensor that is recorded."""

    def __init__(self, look):
        super().__init__()
        self.conv, self.look = with_integers(nn.Conv3d(2, 2, 3, padding=1)), look

    def forward(self, x):
        memory, joined = torch.zeros(1), torch.cat([x[:, :, 1:], x[:, :, :1]], dim=2)
        memory.data = joined
        self.seen = self.look(memory)
        y = self.conv(memory)
        joined += 1  # they share it
        return y, memory


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_a_tensor_that_is_given_the_memory_of_a_recorded_tensor(look):
    model, x = GivenMemoryOfAnother(look), integers(1, 2, 3, 4, 5)
    with torch.no_grad():
        expected, seen = model(x.clone()), model.seen
        with patched(model, backend="torch"):
            results = model(x.clone())
    assert model.seen == seen
    for wanted, result in zip(expected, results, strict=True):
        assert type(result) is torch.Tensor
        assert torch.equal(wanted, result)


class WeightReplacedThenChanged(nn.Module):
    """A convolution waits; its parameter is given other memory, and that is changed."""

    def __init__(self):
        super().__init__()
        self.conv = with_integers(nn.Conv3d(2, 2, 3, padding=1))

    def forward(self, x):
        y = self.conv(x)
        self.conv.weight.data = self.conv.weight.data * 2
        self.conv.weight.mul_(3)
        return y, self.conv(x)


def test_a_parameter_that_is_given_other_memory_and_changed():
    x = integers(1, 2, 3, 4, 5)
    with torch.no_grad():
        expected = WeightReplacedThenChanged()(x)
        model = WeightReplacedThenChanged()
        with patched(model, backend="torch"):
            results = model(x)
    assert all(
        torch.equal(wanted, result) for wanted, result in zip(expected, results, strict=True)
    )


class DeepCopies(nn.Module):
    """Copies of a tensor and of a view of it, which share memory as these do."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(2, 2, 1)

    def forward(self, x):
        joined = torch.cat([x, x], dim=2)
        whole, some = copy.deepcopy([joined, joined[:, :, 1:3]])
        some += 1
        return whole, some


def test_deep_copies_share_memory_and_have_the_strides_of_their_origins():
    x = integers(1, 2, 3, 4, 5)
    with torch.no_grad():
        expected = DeepCopies()(x)
        model = DeepCopies()
        with patched(model, backend="torch"):
            results = model(x)
    for wanted, result in zip(expected, results, strict=True):
        assert torch.equal(wanted, result)
        assert wanted.stride() == result.stride()


class ViewOfAPermutedCopy(nn.Module):
    """A view that torch refuses."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(2, 2, 1)

    def forward(self, x):
        return x.transpose(1, 2).clone().view(x.shape[0], -1)


def test_a_view_that_torch_refuses_is_refused():
    model, x = ViewOfAPermutedCopy(), integers(2, 2, 3, 4, 5)
    with torch.no_grad():
        with pytest.raises(RuntimeError, match="view size is not compatible"):
            model(x)
        with (
            patched(model, backend="torch"),
            pytest.raises(RuntimeError, match="view size is not compatible"),
        ):
            model(x)
