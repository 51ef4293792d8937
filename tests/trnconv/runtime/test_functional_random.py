"""The whole family on random members: 200, 500 with `-m slow`, or as many as --random-shapes."""

from collections import Counter

import numpy as np
import pytest

from family_bounds import FUNCTIONS
from family_calls import arrays_of, check_member, expected, run_member
from random_family import (
    FORWARD,
    INPUT_GRADIENT,
    MACHINES,
    MODES,
    TRANSPOSED,
    random_member,
)
from repetition import BY_DEFAULT, IN_ALL, parametrize_numbers, slow_beyond
from tolerance import excess
from trnconv.problem.epilogue import ACTIVATIONS


def pytest_generate_tests(metafunc):
    parametrize_numbers(metafunc)


def failure(member):
    """What went wrong, in one line, or None."""
    try:
        check_member(member)
    except Exception as error:  # noqa: BLE001 (all that fail are listed, with their numbers)
        return f"{member}\n    {type(error).__name__}: {error}"
    return None


def test_random_members_are_the_reference_within_the_bound(numbers):
    failures = [text for number in numbers if (text := failure(random_member(number)))]
    assert not failures, f"{len(failures)} of {len(numbers)}:\n" + "\n".join(failures)


def test_random_members_cover_the_family():
    members = [random_member(number) for number in range(IN_ALL)]
    shapes = [member.shape for member in members]
    kinds = Counter(member.kind for member in members)
    assert kinds[FORWARD] > 200
    assert kinds[TRANSPOSED] > 120
    assert kinds[INPUT_GRADIENT] > 60
    assert {(member.machine, member.cores) for member in members[:BY_DEFAULT]} == set(MACHINES)
    assert sum(member.exact for member in members) > 100
    assert sum(shape.groups > 1 for shape in shapes) > 250
    assert (
        sum(shape.c_in == shape.groups > 1 == shape.c_out // shape.groups for shape in shapes) > 60
    )
    assert sum(shape.c_in == shape.groups < shape.c_out for shape in shapes) > 60
    assert sum(max(shape.stride) > 1 for shape in shapes) > 200
    assert sum(max(shape.dilation) > 1 for shape in shapes) > 150
    assert len(set(shapes)) > 480
    assert random_member(7) == random_member(7)


def test_random_members_mix_padding_modes_and_ends():
    members = [random_member(number) for number in range(IN_ALL)]
    forwards = [member.shape for member in members if member.kind == FORWARD]
    for mode in MODES:
        assert sum(mode in shape.modes for shape in forwards) > 60, mode
    assert sum(len(set(shape.modes)) > 1 for shape in forwards) > 100
    activations = Counter(member.epilogue.activation for member in members)
    assert all(activations[name] > 10 for name in ACTIVATIONS), activations
    assert {member.epilogue.residual for member in members} == {"none", "before", "after"}
    assert {member.epilogue.dtype for member in members} == {"", "bfloat16", "float16", "float32"}
    for dtype in ("bfloat16", "float16", "float32"):
        assert sum(member.dtype == dtype for member in members) > 80
    cropped = [m.shape for m in members if m.kind == TRANSPOSED and max(m.shape.pad_before) > 0]
    assert len(cropped) > 80


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_slope_of_an_activation_is_bounded_by_its_constant_and_not_by_much_less(name):
    function, slope = FUNCTIONS[name]
    step = 2.0**-12
    z = np.arange(-32.0, 32.0, step)
    slopes = np.abs(np.diff(function(z))) / step
    assert 0.999 * slope <= slopes.max() <= slope


def notices(member):
    """Whether an input with one channel's sign turned is noticed; None if that changes nothing."""
    x, *others = arrays_of(member)
    exact, bound = expected(member, x, *others)
    changed = x.copy()
    changed[:, -1] *= -1
    moved = np.abs(expected(member, changed, *others)[0] - exact)
    if not (moved > 4 * bound + 1e-3).any():
        return None
    return bool((excess(run_member(member, changed, *others), exact, bound) > 0).any())


@pytest.mark.parametrize("count", slow_beyond(1, [12, 40]))
def test_a_wrong_input_is_noticed(count):
    found = [notices(random_member(number)) for number in range(count)]
    assert found.count(True) > 0.75 * count
    assert False not in found
