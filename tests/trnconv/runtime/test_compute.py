"""What is too large for one launch: of every kind, the parts put together are the reference.

Here memory "ends" after a few elements. Small integers are summed exactly in any order, so that
outputs are compared in bits.
"""

from math import prod

import numpy as np
import pytest

from gradient_bounds import assert_gradients
from gradient_calls import gradients, integers
from repetition import few, slow_beyond
from trnconv.errors import PlanError
from trnconv.geometry import conv_shape, transposed_shape
from trnconv.problem import launches
from trnconv.reference import forward, transposed
from trnconv.runtime import LaunchOptions, convolve_shape, convolve_transposed, simulator

COUNT = 30
TARGETS = ("trn2", "trn3", "trn1")


@pytest.fixture
def memory_ends(monkeypatch):
    """`memory_ends(most)`: a launch has at most so many elements in and out."""
    right = launches.launches

    def after(most):
        monkeypatch.setattr(launches, "launches", lambda shape: right(shape, most))

    return after


@pytest.fixture
def planned(monkeypatch):
    """Shapes of the launches that were planned."""
    seen = []
    right = simulator.plans_for

    def recording(problem, cores):
        seen.append(problem.shape)
        return right(problem, cores)

    monkeypatch.setattr(simulator, "plans_for", recording)
    return seen


def elements(shape):
    x = shape.batch * shape.c_in * prod(shape.size)
    return max(x, shape.batch * shape.c_out * prod(shape.out_sizes()))


def limit(shape, share=5):
    """A part of all, as large as what cannot be split."""
    most = max(1, elements(shape) // share)
    try:
        launches.launches(shape, most)
    except PlanError:
        return limit(shape, share - 1)
    return most


def random_transposed(number):
    """Strides below, at and beyond the kernel; crops, output padding, dilation, groups, images."""
    rng = np.random.default_rng([16, number])
    rank = 1 + number % 3
    kernel, stride = rng.integers(1, 5, rank), rng.integers(1, 4, rank)
    dilation = rng.integers(1, 3, rank)
    reach = dilation * (kernel - 1)
    padding = rng.integers(0, reach // 2 + 1)
    extra = rng.integers(0, np.maximum(stride, dilation))
    groups = int(rng.choice([1, 1, 2]))
    c_in, c_out = (groups * int(rng.integers(1, 20)) for _ in "io")
    x = (int(rng.integers(1, 3)), c_in, *(int(n) for n in rng.integers(3, 12, rank)))
    return transposed_shape(
        x,
        (c_in, c_out // groups, *map(int, kernel)),
        stride=tuple(map(int, stride)),
        padding=tuple(map(int, padding)),
        dilation=tuple(map(int, dilation)),
        output_padding=tuple(map(int, extra)),
        groups=groups,
    )


def transposed_arrays(shape, dtype=np.float32):
    rng = np.random.default_rng(shape.c_in)
    sizes = (
        (shape.batch, shape.c_in, *shape.size),
        (shape.c_in, shape.c_out // shape.groups, *shape.kernel),
        (shape.c_out,),
    )
    return [rng.integers(-3, 4, size).astype(dtype) for size in sizes]


@pytest.mark.parametrize("number", slow_beyond(1, range(COUNT)))
def test_transposed_convolutions(number, memory_ends, planned):
    shape = random_transposed(number)
    x, w, bias = transposed_arrays(shape)
    most = limit(shape)
    memory_ends(most)
    launch = LaunchOptions(machine=TARGETS[number % 3])
    y = convolve_transposed(x, w, bias, shape, launch).y
    np.testing.assert_array_equal(y, transposed(x, w, bias, shape))
    assert all(elements(part) <= most for part in planned)


def test_most_of_them_took_several_launches():
    """So the test above can fail."""
    shapes = [random_transposed(number) for number in range(COUNT)]
    parts = [launches.launches(shape, limit(shape)) for shape in shapes]
    assert sum(len(found) > 1 for found in parts) > 0.9 * COUNT
    axes = {axis for found in parts for part in found for axis in range(3) if part.y_first[axis]}
    assert axes == {0, 1, 2}
    assert any(part.image for found in parts for part in found)


@few(8)
@pytest.mark.parametrize("number", range(COUNT))
def test_outputs_of_a_part_are_those_of_the_whole(number):
    """By the reference alone, without a kernel."""
    shape = random_transposed(number)
    x, w, bias = transposed_arrays(shape, np.float64)
    whole = transposed(x, w, bias, shape)
    y, times = np.full(whole.shape, np.nan), np.zeros(whole.shape, int)
    for part in launches.launches(shape, limit(shape)):
        (own,) = part.inputs_of((x,))
        assert own.shape == (part.shape.batch, part.shape.c_in, *part.shape.size)
        part.output_of(y)[...] = transposed(own, w, bias, part.shape)
        part.output_of(times)[...] += 1
    assert (times == 1).all()
    np.testing.assert_array_equal(y, whole)


def test_transposed_channels_are_halved_where_no_program_is_short_enough(monkeypatch):
    shape = transposed_shape((1, 12, 5, 6), (12, 20, 4, 4), stride=2, padding=1)
    x, w, bias = transposed_arrays(shape)
    right = simulator.plans_for

    def short_ones(problem, cores):
        if problem.shape.c_out > 5:
            raise PlanError("too long")
        return right(problem, cores)

    monkeypatch.setattr(simulator, "plans_for", short_ones)
    done = convolve_transposed(x, w, bias, shape)
    assert len(done.runs) == 4
    np.testing.assert_array_equal(done.y, transposed(x, w, bias, shape))


def random_forward(number):
    rng = np.random.default_rng([17, number])
    rank = 1 + number % 3
    kernel, stride = rng.integers(1, 4, rank), rng.integers(1, 3, rank)
    groups = int(rng.choice([1, 1, 2]))
    c_in, c_out = (groups * int(rng.integers(1, 24)) for _ in "io")
    x = (int(rng.integers(1, 4)), c_in, *(int(n) for n in rng.integers(6, 14, rank)))
    return conv_shape(
        x,
        (c_out, c_in // groups, *map(int, kernel)),
        stride=tuple(map(int, stride)),
        padding=tuple((int(k) // 2, (int(k) - 1) // 2) for k in kernel),
        groups=groups,
    )


@few(6)
@pytest.mark.parametrize("number", range(COUNT))
def test_weight_gradients_are_summed_over_the_launches(number, memory_ends, planned):
    shape = random_forward(number)
    x, dy = integers(shape, "bfloat16")
    most = limit(shape)
    memory_ends(most)
    dw, db, _ = gradients(shape, x, dy, machine=TARGETS[number % 3])
    assert_gradients(dw, db, x, dy, shape)
    assert all(elements(part) <= most for part in planned)


def test_most_of_those_took_several_launches():
    """So the test above can fail."""
    shapes = [random_forward(number) for number in range(COUNT)]
    parts = [launches.launches(shape, limit(shape)) for shape in shapes]
    assert sum(len(found) > 1 for found in parts) > 0.9 * COUNT
    axes = {axis for found in parts for part in found for axis in range(3) if part.y_first[axis]}
    assert axes == {0, 1, 2}


def test_weight_gradients_of_channels_that_are_halved(monkeypatch):
    shape = conv_shape((1, 12, 7, 9), (20, 12, 3, 3), padding=1)
    x, dy = integers(shape, "bfloat16")
    right = simulator.plans_for
    launched = []

    def short_ones(problem, cores):
        if problem.shape.c_out > 5:
            raise PlanError("too long")
        launched.append(problem.shape)
        return right(problem, cores)

    monkeypatch.setattr(simulator, "plans_for", short_ones)
    dw, db, _ = gradients(shape, x, dy)
    assert launched
    assert_gradients(dw, db, x, dy, shape)


@few(1)
@pytest.mark.parametrize(
    "shape",
    [
        conv_shape((2, 40, 9, 30), (40, 1, 3, 3), padding=1, groups=40),
        conv_shape((1, 6, 4, 9, 11), (12, 1, 3, 3, 3), padding=1, groups=6),
    ],
    ids=["image", "video"],
)
def test_depthwise_convolutions(shape, memory_ends):
    rng = np.random.default_rng(shape.c_in)
    x = rng.integers(-3, 4, (shape.batch, shape.c_in, *shape.size)).astype(np.float32)
    w = rng.integers(-3, 4, (shape.c_out, 1, *shape.kernel)).astype(np.float32)
    bias = rng.integers(-3, 4, shape.c_out).astype(np.float32)
    memory_ends(elements(shape) // 3)
    done = convolve_shape((x,), w, bias, shape, LaunchOptions(algorithms=("depthwise",)))
    assert len(done.runs) > 2
    np.testing.assert_array_equal(done.y, forward(x, w, bias, shape))
