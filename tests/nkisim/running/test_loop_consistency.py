"""Loop bodies are traced once: Python state that changes from iteration to iteration is found."""

from pathlib import Path

import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.errors import NkiValidationError
from nkisim.running.kernel import run

pytestmark = pytest.mark.usefixtures("logical_cores_of_one")  # loops on one core
both_ways = pytest.mark.parametrize("values", [True, False])
HERE = Path(__file__)


def line_of(text):
    """The number of the line of this file that ends in a comment."""
    lines = HERE.read_text().splitlines()
    (found,) = (n for n, line in enumerate(lines, 1) if line.endswith(f"# {text}"))
    return found


def tiles(count, shape=(4, 8)):
    return [nl.zeros(shape, nl.float32) for _ in range(count)]


def number_that_counts():
    tile, iterations = tiles(1)[0], []

    def body(_):
        iterations.append(None)
        nisa.memset(tile, float(len(iterations)))  # a counter as a value

    nl.fori_loop(0, 4, body)


def option_that_counts():
    tile, scale = tiles(1)[0], [1.0]

    def body(_):
        nisa.activation(tile, nl.exp, tile, scale=scale[0])  # a counter as a scale
        scale[0] /= 2

    nl.fori_loop(0, 4, body)


def tiles_in_iteration():
    ring, used = tiles(2), [0]

    def body(_):
        nisa.memset(ring[used[0] % 2], 0.0)  # a tile out of a list
        used[0] += 1

    nl.fori_loop(0, 4, body)


def columns_in_iteration():
    tile, column = tiles(1)[0], [0]

    def body(_):
        nisa.memset(tile[:, column[0] : column[0] + 1], 0.0)  # a column that moves
        column[0] += 1

    nl.fori_loop(0, 4, body)


def state_in_the_inner_loop():
    tile, iterations = tiles(1)[0], []

    def inner(_):
        nisa.memset(tile, float(len(iterations)))  # a counter of the outer loop

    def outer(_):
        nl.fori_loop(0, 2, inner)
        iterations.append(None)

    nl.fori_loop(0, 3, outer)


def offset_that_counts():
    x, tile, added = nl.zeros((64, 8), nl.float32, nl.private_hbm), tiles(1)[0], [0]

    def body(i):
        source = x.ap([[8, 4], [1, 8]], scalar_offset=i * 4 + added[0], indirect_dim=0)
        nisa.dma_copy(tile, source)  # a counter in a scalar
        added[0] += 1

    nl.fori_loop(0, 4, body)


def more_and_more():
    tile, iterations = tiles(1)[0], []

    def body(_):
        iterations.append(None)
        for _iteration in iterations:
            nisa.memset(tile, 0.0)  # once more in every iteration

    nl.fori_loop(0, 4, body)


def while_that_counts():
    tile, left, iterations = tiles(1)[0], nl.zeros((1, 1), nl.int32), []
    nisa.memset(left, 3)

    def body(register):
        iterations.append(None)
        nisa.memset(tile, float(len(iterations)))  # a counter of a while loop
        nisa.tensor_scalar(left, left, nl.subtract, 1)
        nisa.register_load(register, left)
        return register

    start = nisa.register_alloc()
    nisa.register_load(start, left)
    nl.while_loop(start, body)


CHANGING = {
    "a counter as a value": (number_that_counts, r"memset with value=2.0, .* had 1.0"),
    "a counter as a scale": (option_that_counts, r"activation with scale=0.5, .* had 1.0"),
    "a tile out of a list": (tiles_in_iteration, "memset with dst='sbuf_1'"),
    "a column that moves": (columns_in_iteration, "from element 1 on, where the first one had"),
    "a counter of the outer loop": (state_in_the_inner_loop, "memset with value=1.0"),
    "a counter in a scalar": (offset_that_counts, "dma_copy with src="),
    "once more in every iteration": (
        more_and_more,
        "memset, where the first one issued nothing more",
    ),
    "a counter of a while loop": (while_that_counts, "memset with value=2.0"),
}


@both_ways
@pytest.mark.parametrize("name", CHANGING)
def test_state_that_changes_from_iteration_to_iteration_is_refused_with_the_line(name, values):
    kernel, message = CHANGING[name]
    with pytest.raises(NkiValidationError, match=message) as refusal:
        run(kernel, machine="trn2", values=values)
    assert "the body is traced once" in refusal.value.limit
    assert (refusal.value.file, refusal.value.line) == (str(HERE), line_of(name))


def state_that_starts_over():
    ring, used = tiles(2), [0]

    def body(_):
        used[0] = 0
        for _iteration in range(4):
            nisa.memset(ring[used[0] % 2], float(used[0]))
            used[0] += 1

    nl.fori_loop(0, 4, body)


def state_that_reaches_nothing():
    tile, iterations = tiles(1)[0], []

    def body(_):
        iterations.append(None)
        nisa.memset(tile, float("nan"))

    nl.fori_loop(0, 4, body)


def data_that_changes():
    """What the device changes is no Python state: SBUF, registers, and an inner loop's trips."""
    tile, left = tiles(1)[0], nl.zeros((1, 1), nl.int32)
    nisa.memset(left, 3)

    def outer(_):
        bound = nisa.register_alloc()
        nisa.tensor_scalar(left, left, nl.subtract, 1)
        nisa.register_load(bound, left)
        nl.fori_loop(0, bound, lambda _: nisa.tensor_scalar(tile, tile, nl.add, 1.0))

    nl.fori_loop(0, 4, outer)


@both_ways
@pytest.mark.parametrize(
    "kernel", [state_that_starts_over, state_that_reaches_nothing, data_that_changes]
)
def test_what_every_iteration_does_alike_is_accepted(kernel, values):
    run(kernel, machine="trn2", values=values)


@both_ways
def test_a_tensor_of_the_body_cannot_be_read_after_the_loop(values):
    def kernel():
        made = []

        def body(_):
            made.append(nl.zeros((4, 8), nl.float32))

        nl.fori_loop(0, 2, body)
        nisa.tensor_copy(tiles(1)[0], made[0])  # after the loop

    with pytest.raises(NkiValidationError, match="body of a hardware loop allocated") as refusal:
        run(kernel, machine="trn2", values=values)
    assert refusal.value.line == line_of("after the loop")
    assert refusal.value.remedy == "allocate the tensor before the loop"


@both_ways
def test_a_tensor_of_the_body_cannot_be_read_in_the_next_iteration(values):
    def kernel():
        kept, sink = [nl.zeros((4, 8), nl.float32)], tiles(1)[0]

        def body(_):
            nisa.tensor_copy(sink, kept[0])  # what the iteration before made
            kept[0] = nl.zeros((4, 8), nl.float32)

        nl.fori_loop(0, 3, body)

    with pytest.raises(NkiValidationError) as refusal:
        run(kernel, machine="trn2", values=values)
    assert "body of a hardware loop allocated" in str(refusal.value)
    assert refusal.value.line == line_of("what the iteration before made")


@both_ways
def test_a_tensor_of_the_outer_body_lives_in_the_inner_one(values):
    def kernel(x):
        out = nl.ndarray((4, 8), nl.float32, nl.shared_hbm)

        def outer(i):
            row = nl.ndarray((1, 8), nl.float32)
            nisa.dma_copy(row, x[nl.ds(i, 1)])
            nl.fori_loop(0, 2, lambda _: nisa.tensor_scalar(row, row, nl.add, 1.0))
            nisa.dma_copy(out[nl.ds(i, 1)], row)

        nl.fori_loop(0, 4, outer)
        return out

    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    done = run(kernel, x, machine="trn2", values=values)
    if values:
        np.testing.assert_array_equal(done.outputs, x + 2)
