"""Random small programs over the tensors of a model: views, aliases, changes in place, hooks.

A program is a list of steps by name with random numbers, so that a seed says all. Every step gets
the pool of tensors made so far; torch's own errors are results like others.
"""

import copy
import random

import torch
from torch.nn import functional

MOST = 6000  # elements of a tensor
STEPS = 16


@torch.library.custom_op("trnconv_tests::halve", mutates_args={"x"})
def halve(x: torch.Tensor) -> None:
    x.mul_(0.5)


@torch.library.custom_op("trnconv_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


def some(pool, number):
    return pool[int(number * len(pool))]


def axis_of(x, number):
    return int(number * x.dim())


def video(x):
    """A tensor as [1, 3, T, H, W], if it has such a shape."""
    return x if x.dim() == 5 and x.shape[1] == 3 and min(x.shape[2:]) >= 1 else None


def padded(x, y, c, tools):
    sides = ((1, 0, 0, 1), (1, 1), (0, 0, 0, 0, 2, 0), (0, 1, 1, 1, 1, 0))[int(c * 4)]
    return functional.pad(x, sides[: 2 * x.dim()])


def padded_by_copies(x, y, c, tools):
    mode = "replicate" if c < 0.5 else "reflect"
    return functional.pad(x, (1, 1, 0, 1, 1, 0) if x.dim() == 5 else (1, 0, 0, 1), mode=mode)


def joined(x, y, c, tools):
    others = [x, y] if y.shape == x.shape else [x, x.narrow(0, 0, 1)]
    return torch.cat(others, 2 if x.dim() == 5 and c < 0.7 else axis_of(x, c))


def cut(x, y, c, tools):
    at = 2 if x.dim() == 5 and c < 0.5 else axis_of(x, c)
    return x.narrow(at, int(c * x.shape[at]), 1) if c < 0.3 else x[(slice(None),) * at][:1]


def last_frames(x, y, c, tools):
    return x[:, :, -2:] if x.dim() > 2 else x[-1:]


def permuted(x, y, c, tools):
    if x.dim() == 5 and c < 0.6:
        return x.permute(0, 2, 1, 3, 4)
    return x.transpose(0, axis_of(x, c))


def reshaped(x, y, c, tools):
    if x.dim() == 5 and c < 0.6:
        return x.reshape(-1, *x.shape[2:])
    return x.flatten(0, 1) if x.dim() > 1 and c < 0.9 else x.reshape(-1)


def viewed(x, y, c, tools):
    return x.view(x.shape[0], -1) if c < 0.5 else x.unsqueeze(axis_of(x, c)).squeeze()


def grown(x, y, c, tools):
    if c < 0.4:
        return x.repeat_interleave(2, dim=axis_of(x, c))
    return functional.interpolate(x, scale_factor=2.0 if c < 0.7 else (1.0, 2.0, 2.0))


def repeated(x, y, c, tools):
    return x.repeat(*[1] * (x.dim() - 3), 2, 1, 1)


def cast(x, y, c, tools):
    return x.double().to(x.dtype) if c < 0.5 else x.double().type_as(y)


def convolved(x, y, c, tools):
    return None if video(x) is None else tools.convs[int(c * len(tools.convs))](x)


def convolved_by_function(x, y, c, tools):
    return None if video(x) is None else functional.conv3d(x, tools.convs[0].weight, padding=1)


def as_images(x, y, c, tools):
    if video(x) is None:
        return None
    n, _, t, h, w = x.shape
    images = tools.images(x.permute(0, 2, 1, 3, 4).reshape(n * t, 3, h, w))
    if c < 0.2:
        return images
    if c < 0.4:
        return (images * 2).view(n, t * 3, h, w)
    framed = images.unflatten(0, (n, t)).permute(0, 2, 1, 3, 4)
    return framed if c < 0.7 else framed.contiguous()


def images_convolved(x, y, c, tools):
    return tools.images(x) if x.dim() == 4 and x.shape[1] == 3 else None


def line_convolved(x, y, c, tools):
    """Of samples, and then some of them are replaced."""
    if x.dim() != 5 or x.shape[1] != 3:
        return None
    made = tools.lines(x.flatten(2))
    if c < 0.6:
        made[:, :, : 1 + int(3 * c)] = round(4 * c) / 4
    return made.view(made.shape[0], -1) if c < 0.3 else made


def summed(x, y, c, tools):
    return x + y if c < 0.8 or x.shape != y.shape else torch.add(x, y, alpha=2)


def activated(x, y, c, tools):
    """Rounded, so that sums are exact and all orders of summation give the same bits."""
    if c < 0.4:
        return functional.relu(x)
    function = (torch.tanh, functional.silu, torch.sigmoid)[int(c * 3)]
    return torch.round(function(x) * 4) / 4


def halved(x, y, c, tools):
    halve(x)


def powered(x, y, c, tools):
    x **= 2
    x %= 3


def foreach(x, y, c, tools):
    torch._foreach_add_([x] if x is y else [x, y], 0.25)


def set_frame(x, y, c, tools):
    x[..., -1:] = round(4 * c) / 4


def filled(x, y, c, tools):
    if x.shape == y.shape:
        x.copy_(y)


def raw_change(x, y, c, tools):
    torch.ops.aten.add_.Tensor(x, 1.0)


def by_data(x, y, c, tools):
    x.data.add_(0.5)


def data_taken(x, y, c, tools):
    own = x.clone()
    own.data = y.clone() if y.dtype == own.dtype else own.data
    return own


def weight_changed(x, y, c, tools):
    with torch.no_grad():
        (tools.convs[0].weight if c < 0.5 else tools.convs[0].bias).mul_(0.5)


def weight_replaced(x, y, c, tools):
    if torch.is_grad_enabled():  # torch's own gradients would be of the new data
        return
    weight = tools.convs[0].weight
    if c < 0.3:
        weight.data = weight.data.to(torch.float64).to(weight.dtype)
    else:
        weight.data = weight.data * 0.5


def written_out(x, y, c, tools):
    torch.clamp(x, -2, 2, out=x)


def reduced(x, y, c, tools):
    tools.log.append(float(x.detach().sum()))


def looked_at(x, y, c, tools):
    tools.log.append((f"{x.flatten()[0]:.3f}", len(x), bool(x.numel()), x.tolist() == x.tolist()))


def deep_copied(x, y, c, tools):
    return copy.deepcopy(x) if c < 0.5 else torch.as_tensor(x.numpy().copy())


def in_containers(x, y, c, tools):
    tools.kept.append({"pair": (x, [y])})


def out_of_containers(x, y, c, tools):
    return tools.kept[int(c * len(tools.kept))]["pair"][1][0] if tools.kept else None


def into_memory(x, y, c, tools):
    """Operators that have a note, into memory that their caller made."""
    if x.dim() == 5 and c < 0.6:
        out = x.new_zeros((*x.shape[:2], 2 * x.shape[2], *x.shape[3:]))
        torch.cat([x, x], 2, out=out if c < 0.4 else out[:])
        return out
    out = torch.zeros_like(x)
    torch.mul(x, 2, out=out)
    return torch.add(x, out, out=out) if c < 0.8 else out


def laid_out_otherwise(x, y, c, tools):
    if x.dim() == 4:
        return x.contiguous(memory_format=torch.channels_last)
    return x.contiguous(memory_format=torch.channels_last_3d) if x.dim() == 5 else x.t().t()


def scaled_by_a_leaf(x, y, c, tools):
    """By a tensor that is no parameter, and may want a gradient."""
    return x * tools.leaf[0] if c < 0.5 else x + tools.leaf[0] * y.sum()


def by_a_weight_made_inside(x, y, c, tools):
    if video(x) is None:
        return None
    weight = torch.nn.functional.pad(tools.convs[1].weight, (1, 1))
    if c < 0.5:
        return functional.conv3d(x, torch.cat([weight[:, :, :1]] * 2, 2), padding=1)
    inside = copy.deepcopy(tools.convs[0])
    inside.weight = torch.nn.Parameter(inside.weight.clone(), requires_grad=False)
    return inside(x)


def custom(x, y, c, tools):
    return twice(x)


def in_place_shape(x, y, c, tools):
    own = x.clone()
    own.unsqueeze_(0)
    own.transpose_(0, 1)
    return own


def parts(x, y, c, tools):
    return x.chunk(2, axis_of(x, c))[0] if c < 0.5 else x.unbind(0)[-1]


def broadcast(x, y, c, tools):
    return x.unsqueeze(0).expand(2, *x.shape).clone()[0]


def chosen(x, y, c, tools):
    return torch.where(x > 0, x, -x)


def in_a_buffer(x, y, c, tools):
    """Frames of one and of the other, put into memory one after the other."""
    make = (torch.zeros_like, lambda like: like.new_zeros(like.shape))[int(c * 2)]
    out = make(x.contiguous())
    if x.dim() < 3 or x.shape[2] < 2:  # a write of no elements makes torch's gradients odd
        return out
    cut = 1 + int(10 * c) % (x.shape[2] - 1)
    view = out[:, :, :cut] if c < 0.7 else out.narrow(2, 0, cut)
    out[:, :, :cut] = x[:, :, :cut].clone()
    out[:, :, cut:] = (y if y.shape == x.shape else x)[:, :, cut:] + 1
    if c < 0.2:
        view.add_(1)
    return out if c < 0.9 else view


def convolved_in_chunks(x, y, c, tools):
    """A layer on parts of its input, with their halo; one of the parts is looked at perhaps."""
    if video(x) is None or x.shape[2] < 2:
        return None
    conv = tools.convs[1]  # three taps along frames
    cut = 1 + int(c * (x.shape[2] - 1))
    framed = functional.pad(x, (0, 0, 0, 0, 1, 1), mode="replicate" if c < 0.5 else "constant")
    parts = [
        functional.conv3d(part, conv.weight, conv.bias)
        for part in (framed[:, :, : cut + 2], framed[:, :, cut:])
    ]
    together = torch.cat(parts, dim=2)
    if c < 0.3:
        tools.log.append(float(parts[int(c * 6)].sum()))
    return together


def copied(x, y, c, tools):
    return x.clone() if c < 0.5 else x.contiguous()


VALUES = [
    padded, padded_by_copies, joined, cut, last_frames, permuted, reshaped, viewed, grown, repeated,
    cast, convolved, convolved, convolved_by_function, as_images, summed, activated, data_taken,
    deep_copied, out_of_containers, custom, in_place_shape, parts, broadcast, chosen,
    copied, copied, in_a_buffer, convolved_in_chunks, as_images, images_convolved, line_convolved,
    into_memory, laid_out_otherwise, scaled_by_a_leaf, by_a_weight_made_inside,
]  # fmt: skip
EFFECTS = [
    halved, powered, foreach, set_frame, filled, raw_change, by_data, weight_changed,
    weight_replaced, written_out, reduced, looked_at, in_containers,
]  # fmt: skip


class Program(torch.nn.Module):
    """A random program as a model: it returns all it made, in several containers."""

    def __init__(self, seed):
        super().__init__()
        choose = random.Random(seed)  # noqa: S311 (reproducible, not secret)
        self.steps = [
            (choose.choice(VALUES if choose.random() < 0.7 else EFFECTS), *_numbers(choose))
            for _ in range(choose.randint(4, STEPS))
        ]
        self.convs = torch.nn.ModuleList(
            [
                torch.nn.Conv3d(3, 3, 3, padding=1),
                torch.nn.Conv3d(3, 3, (3, 1, 1), padding=(1, 0, 0)),
            ]
        )
        self.images = torch.nn.Conv2d(3, 3, 3, padding=1)
        self.lines = torch.nn.Conv1d(3, 3, 3, padding=1)
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.parameters():
            parameter.data = torch.randint(-1, 2, parameter.shape, generator=generator) / 2.0
        if choose.random() < 0.2:
            self.convs[1].register_forward_hook(lambda _module, _given, made: made.mul_(2))
        if choose.random() < 0.1:
            self.convs[0].register_forward_pre_hook(lambda _module, given: (given[0] + 1,))
        self.log, self.kept = [], []
        self.requires_grad_(requires_grad=False)
        self.leaf = [torch.full((1,), 0.5, requires_grad=True)]  # in a list: nobody looks there

    def forward(self, *given):
        pool = list(given)
        for step, a, b, c in self.steps:
            x, y = some(pool, a), some(pool, b)
            if x.numel() > MOST:
                continue
            try:
                made = step(x, y, c, self)
            except (RuntimeError, IndexError, ValueError, NotImplementedError) as error:
                self.log.append(type(error).__name__)
                continue
            if made is not None and made.numel():
                pool.append(made)
        return {"all": pool, "last": (pool[-1], [pool[0]])}


def _numbers(choose):
    return choose.random(), choose.random(), choose.random()


def clips(seed):
    generator = torch.Generator().manual_seed(seed)
    shape = (1 + seed % 2, 3, 3, 4, 5)
    return [torch.randint(-2, 3, shape, generator=generator) / 2.0 for _ in range(2)]
