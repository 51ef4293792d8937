"""Small shapes as users of torch have them, and no images: values and gradients are torch's.

Small integers in float32: torch in float64 and the kernels, in whatever order, have the same sums.
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from random_family import FORWARD, TRANSPOSED
from torch_shapes import EVERY, torch_shape
from trnconv.pytorch import functional

pytestmark = pytest.mark.torch
COUNT, CHUNK = 60, 10
CHUNKS = [range(EVERY * n, EVERY * (n + CHUNK), EVERY) for n in range(0, COUNT, CHUNK)]


def arguments(member):
    """What torch's function is called with: x, w and options, at the rank of the shape."""
    shape, hidden = member.shape, 3 - member.rank
    rng = np.random.default_rng(member.number)
    ins, outs = shape.c_in // shape.groups, shape.c_out // shape.groups
    upward = member.kind == TRANSPOSED
    first = (shape.c_in, outs) if upward else (shape.c_out, ins)
    sizes = (shape.batch, shape.c_in, *shape.size[hidden:]), (*first, *shape.kernel[hidden:])
    x, w = (torch.from_numpy(rng.integers(-2, 3, size).astype(np.float32)) for size in sizes)
    options = {
        "stride": shape.stride[hidden:],
        "padding": shape.pad_before[hidden:],
        "dilation": shape.dilation[hidden:],
        "groups": shape.groups,
    }
    if upward:
        more = [
            shape.out[axis]
            - (shape.size[axis] - 1) * shape.stride[axis]
            + 2 * shape.pad_before[axis]
            - shape.dilation[axis] * (shape.kernel[axis] - 1)
            - 1
            for axis in range(3)
        ]
        options["output_padding"] = tuple(more[hidden:])
    return x, w, options


def computed(function, x, w, options, *, backwards):
    """The output, and the gradients of x and w for a gradient of small integers."""
    x, w = (each.clone().requires_grad_(backwards) for each in (x, w))
    y = function(x, w, **options)
    if not backwards:
        return [y.detach().double()]
    rng = np.random.default_rng(3)
    dy = torch.from_numpy(rng.integers(-1, 2, tuple(y.shape)))
    return [y.detach().double(), *torch.autograd.grad(y, (x, w), dy.to(y.dtype))]


def is_torchs(member):
    x, w, options = arguments(member)
    name = f"conv_transpose{member.rank}d" if member.kind == TRANSPOSED else f"conv{member.rank}d"
    backwards = member.kind not in (FORWARD, TRANSPOSED)
    ours = computed(getattr(functional, name), x, w, options, backwards=backwards)
    wide = (x.double(), w.double())
    theirs = computed(getattr(torch.nn.functional, name), *wide, options, backwards=backwards)
    return all(torch.equal(mine.double(), other) for mine, other in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("numbers", CHUNKS, ids=[f"{one.start}..{one.stop - 1}" for one in CHUNKS])
def test_small_shapes_have_torchs_values_and_gradients(numbers):
    members = [torch_shape(number) for number in numbers]
    wrong = [member for member in members if not is_torchs(member)]
    assert not wrong, "\n".join(map(str, wrong))


def test_all_kinds_are_among_them():
    assert len({torch_shape(number).kind for numbers in CHUNKS for number in numbers}) == 4


@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d"])
def test_no_images_have_the_sizes_and_gradients_of_torch(name):
    x, w = torch.zeros(0, 4, 6, 7), torch.ones(4, 4, 1, 1)
    options = {"stride": 4}
    if name == "conv_transpose2d":
        options["output_padding"] = 3
    ours, theirs = (
        computed(getattr(where, name), x, w, options, backwards=True)
        for where in (functional, torch.nn.functional)
    )
    assert [each.shape for each in ours] == [each.shape for each in theirs]
    assert not ours[2].any()


@pytest.mark.parametrize("sizes", [(1, 4, 0, 7), (1, 0, 6, 7)])
def test_nothing_to_convolve_is_refused_and_not_left_uninitialised(sizes):
    x, w = torch.zeros(sizes), torch.ones(4, sizes[1], 3, 3)
    with pytest.raises(RuntimeError, match="of all but the images at least one"):
        functional.conv2d(x, w, padding=2)
