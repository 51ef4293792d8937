"""Small shapes as users of torch have them, and no images: values and gradients are torch's.

Small integers in float32: torch in float64 and the kernels, in whatever order, have the same sums.
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from integer_networks import integers
from random_family import FORWARD, TRANSPOSED
from torch_shapes import EVERY, torch_shape
from trnconv.errors import ShapeError
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


def outcome(function, *arguments, **options):
    """The result, or the type of the error."""
    try:
        return function(*arguments, **options)
    except Exception as error:  # noqa: BLE001 (whatever torch raises is the expectation)
        return type(error)


NOTHING = {  # name: input, weight
    "no images": ("conv2d", (0, 4, 6, 7), (4, 4, 3, 3)),
    "no positions": ("conv2d", (1, 4, 0, 7), (4, 4, 3, 3)),
    "no images and no positions": ("conv2d", (0, 4, 0, 7), (4, 4, 3, 3)),
    "no channels": ("conv2d", (1, 0, 6, 7), (4, 0, 3, 3)),
    "no filters": ("conv2d", (1, 4, 6, 7), (0, 4, 3, 3)),
    "no taps": ("conv2d", (1, 4, 6, 7), (4, 4, 0, 3)),
    "no images, transposed": ("conv_transpose2d", (0, 4, 6, 7), (4, 4, 3, 3)),
    "no positions, transposed": ("conv_transpose2d", (1, 4, 0, 7), (4, 4, 3, 3)),
    "no channels, transposed": ("conv_transpose2d", (1, 0, 6, 7), (0, 4, 3, 3)),
    "no outputs, transposed": ("conv_transpose2d", (1, 4, 1, 7), (4, 4, 4, 3)),
    "fewer than none, transposed": ("conv_transpose2d", (1, 4, 1, 7), (4, 4, 3, 3)),
    "no outputs, 1-D": ("conv_transpose1d", (2, 4, 1), (4, 4, 4)),
    "no outputs, 3-D": ("conv_transpose3d", (2, 4, 1, 5, 5), (4, 4, 4, 5, 5)),
}


@pytest.mark.parametrize("mode", ["zeros", "reflect", "circular"])
@pytest.mark.parametrize("case", NOTHING)
def test_where_nothing_is_computed_torch_says_what_that_gives(case, mode):
    name, sizes, filters = NOTHING[case]
    x, w = torch.zeros(sizes), torch.ones(filters)
    options, pads = {"padding": 2}, (2,) * 2 * (len(sizes) - 2)
    torchs = getattr(torch.nn.functional, name)
    if name.startswith("conv_transpose"):
        expected, options["stride"] = outcome(torchs, x, w, padding=2, stride=1), 1
    elif mode == "zeros":
        expected = outcome(torchs, x, w, padding=2)
    else:
        expected = outcome(lambda: torchs(torch.nn.functional.pad(x, pads, mode=mode), w))
        options["padding_mode"] = mode
    ours = outcome(getattr(functional, name), x, w, **options)
    if isinstance(expected, type):
        assert issubclass(ours, expected)
    else:
        assert torch.equal(ours, expected)


def test_an_output_padding_alone_makes_the_last_positions():
    """No input reaches them: end 0, one position of zeros, and the bias."""
    x, w, b = torch.ones(1, 2, 1), torch.ones(2, 3, 1), torch.arange(3.0)
    options = {"stride": 3, "padding": 1, "output_padding": 2}
    expected = torch.nn.functional.conv_transpose1d(x, w, b, **options)
    assert torch.equal(functional.conv_transpose1d(x, w, b, **options), expected)


@pytest.mark.parametrize("padding", ["numpy", "tensor", "pair"])
def test_whole_numbers_of_other_libraries_are_taken_as_torch_takes_them(padding):
    x, w = integers(1, 2, 5, 5), integers(3, 2, 3, 3)
    one = {"numpy": np.int64(1), "tensor": torch.tensor(1), "pair": (np.int64(1), 1)}[padding]
    expected = torch.nn.functional.conv2d(x, w, padding=one)
    assert torch.equal(functional.conv2d(x, w, padding=one), expected)


def test_a_kernel_that_is_too_large_is_the_error_that_models_expect():
    with pytest.raises(RuntimeError):
        torch.nn.functional.conv2d(torch.ones(1, 2, 3, 3), torch.ones(1, 2, 5, 5))
    with pytest.raises(RuntimeError):
        functional.conv2d(torch.ones(1, 2, 3, 3), torch.ones(1, 2, 5, 5))
    assert issubclass(ShapeError, RuntimeError)
