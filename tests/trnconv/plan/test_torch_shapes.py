"""No shape that torch takes is refused: 500 random ones, and those that were refused once.

All are planned; those that are small enough are run, and held against the definition.
"""

from collections import Counter

import pytest

from family_calls import check_member
from gradient_bounds import assert_gradients
from gradient_calls import gradients, integers
from random_family import FORWARD, INPUT_GRADIENT, TRANSPOSED
from torch_shapes import KINDS, TARGETS, is_small, question_of, torch_shape
from trnconv.ask.question import FILTER_GRADIENT
from trnconv.errors import PlanError
from trnconv.geometry import conv_shape, input_gradient_shape, transposed_shape
from trnconv.runtime.filter_gradient import gradient_question
from trnconv.runtime.convolve import LaunchOptions
from trnconv.runtime.pricing import price

COUNT, CHUNK, BY_DEFAULT = 500, 25, 24
CHUNKS = [range(first, first + CHUNK) for first in range(0, COUNT, CHUNK)]
pytestmark = pytest.mark.plan


def failure(number):
    """What went wrong with a shape, in one line; empty if nothing did."""
    member = torch_shape(number)
    try:
        if not is_small(number):
            price(question_of(member))
        elif member.kind == FILTER_GRADIENT:
            x, dy = integers(member.shape, member.dtype)
            dw, db, _ = gradients(member.shape, x, dy, target=member.target)
            assert_gradients(dw, db, x, dy, member.shape)
        else:
            check_member(member)
    except Exception as error:  # noqa: BLE001 (all that fail are listed, with their numbers)
        return f"{member}\n    {type(error).__name__}: {error}"
    return ""


def failures(numbers):
    return [text for number in numbers if (text := failure(number))]


@pytest.mark.fuzz
@pytest.mark.parametrize("numbers", CHUNKS, ids=[f"{one.start}..{one.stop - 1}" for one in CHUNKS])
def test_none_of_500_shapes_is_refused_and_small_ones_are_right(numbers):
    failed = failures(numbers)
    assert not failed, f"{len(failed)} of {len(numbers)}:\n" + "\n".join(failed)


def test_some_of_them_by_default():
    failed = failures(range(BY_DEFAULT))
    assert not failed, "\n".join(failed)


def test_the_shapes_are_what_users_of_torch_have():
    members = [torch_shape(number) for number in range(COUNT)]
    shapes = [member.shape for member in members]
    kinds = Counter(member.kind for member in members)
    assert set(kinds) == set(KINDS)
    assert min(kinds.values()) > 50
    assert {member.target for member in members} == set(TARGETS)
    assert max(max(shape.size) for shape in shapes) == 4096
    assert max(max(shape.kernel) for shape in shapes) == 31
    assert max(max(shape.stride) for shape in shapes) == 16
    assert max(shape.groups for shape in shapes) == 1024
    assert sum(shape.groups > 1 for shape in shapes) > 150
    assert sum(shape.groups in (131, 251, 509, 997, 1021) for shape in shapes) > 20
    assert sum(max(shape.kernel) > 7 for shape in shapes) > 80
    assert len(set(shapes)) == COUNT
