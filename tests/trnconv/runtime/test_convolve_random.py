"""The forward convolution on random legal shapes: 200, 500 with `-m slow`, or --random-shapes."""

from conv_arrays import integer_arrays, normal_arrays
from conv_calls import compute
from random_convolutions import random_convolution
from repetition import BY_DEFAULT, IN_ALL, parametrize_numbers
from tolerance import assert_convolution


def pytest_generate_tests(metafunc):
    parametrize_numbers(metafunc)


def failure(problem):
    """What went wrong, in one line, or None."""
    arrays = integer_arrays if problem.integers else normal_arrays
    x, w, bias = arrays(problem.shape, problem.dtype, bias=problem.bias, seed=problem.number)
    machine = {"machine": problem.machine, "cores": problem.cores}
    try:
        y = compute(problem.shape, (x, w, bias), rank=problem.rank, **machine)
        assert_convolution(y, x, w, bias, problem.shape)
    except Exception as error:  # noqa: BLE001 (all that fail are listed, with their numbers)
        return f"{problem}\n    {type(error).__name__}: {error}"
    return None


def test_random_shapes_are_the_reference_within_the_bound(numbers):
    failures = [text for number in numbers if (text := failure(random_convolution(number)))]
    assert not failures, f"{len(failures)} of {len(numbers)}:\n" + "\n".join(failures)


def test_random_shapes_cover_what_they_should():
    problems = [random_convolution(number) for number in range(IN_ALL)]
    shapes = [problem.shape for problem in problems]
    assert {(p.machine, p.cores) for p in problems[:BY_DEFAULT]} == {
        ("trn1", 1),
        ("trn2", 1),
        ("trn2", 2),
        ("trn3", 1),
        ("trn3", 2),
    }
    for dtype in ("bfloat16", "float16", "float32"):
        assert sum(problem.dtype == dtype for problem in problems) > 80
    for rank in (1, 2, 3):
        assert sum(problem.rank == rank for problem in problems) > 80
    assert sum(shape.pad_before != shape.pad_after for shape in shapes) > 200
    assert sum(max(shape.stride) > 1 for shape in shapes) > 200
    assert sum(max(shape.dilation) > 1 for shape in shapes) > 200
    assert sum(shape.batch > 1 for shape in shapes) > 150
    assert sum(shape.c_in > 128 or shape.c_out > 128 for shape in shapes) > 40
    assert len(set(shapes)) > 490
    assert random_convolution(7) == random_convolution(7)
