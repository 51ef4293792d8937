"""Steps of a run as operations, built by hand."""

from __future__ import annotations

from dataclasses import replace

from trnconv.traces.groups import operations_of
from trnconv.traces.step import (
    CONVOLUTION,
    POINTWISE,
    PRODUCT,
    REDUCTION,
    SOFTMAX,
    Operand,
    Step,
)

X, GAMMA = 1, 2
SHAPE = (1, 96, 4, 8, 8)
ELEMENTS = 96 * 4 * 8 * 8


def step(name, role, reads, memory, shape=SHAPE, item=2):
    """One that reads memories, each of a shape of its own or of the result's."""
    given = [read if isinstance(read, tuple) else (read, shape) for read in reads]
    operands = tuple(Operand(at, size, 2 * _count(size)) for at, size in given)
    return Step(name, role, "m", operands, memory, shape, "bfloat16", item * _count(shape))


def _count(shape):
    product = 1
    for size in shape:
        product *= size
    return product


def rms_norm():
    """||x||, clamp, x / ., times gamma."""
    thin = (1, 1, 4, 8, 8)
    return [
        step("linalg_vector_norm", REDUCTION, [(X, SHAPE)], 10, thin),
        step("clamp_min", POINTWISE, [10], 11, thin),
        step("div", POINTWISE, [X, 11], 12),
        step("mul", POINTWISE, [12, (GAMMA, (96, 1, 1, 1))], 13),
    ]


def only(steps):
    (operation,) = operations_of(steps)
    return operation


def test_a_rms_norm_is_one_operation():
    found = only(rms_norm())
    assert (found.kind, found.sizes) == ("rms norm", (1, 96, 4 * 8 * 8))
    assert found.steps == ("linalg_vector_norm", "clamp_min", "div", "mul")
    assert found.read_bytes == 2 * ELEMENTS + 2 * 96  # x once, and gamma
    assert found.written_bytes == 2 * ELEMENTS


def test_what_steps_move_each_by_itself_is_kept():
    thin = 4 * 8 * 8
    divided = 3 * ELEMENTS  # x and the divisor, which counts as it is shown here, and the result
    elements = (ELEMENTS + thin) + 2 * thin + divided + (2 * ELEMENTS + 96)
    assert only(rms_norm()).step_bytes == 2 * elements


def test_squares_and_casts_before_a_reduction_belong_to_it():
    wide = step("_to_copy", POINTWISE, [X], 5)
    squares = step("pow", POINTWISE, [5], 6)
    mean = step("mean", REDUCTION, [(6, SHAPE)], 7, (1, 1, 4, 8, 8))
    scaled = step("mul", POINTWISE, [5, 7], 8)
    found = only([wide, squares, mean, scaled])
    assert found.steps == ("_to_copy", "pow", "mean", "mul")
    assert found.read_bytes == 2 * ELEMENTS


def test_an_activation_and_a_residual_stay_apart():
    silu = step("silu", POINTWISE, [13], 14)
    residual = step("add", POINTWISE, [13, 99], 15)
    kinds = [operation.kind for operation in operations_of([*rms_norm(), silu, residual])]
    assert kinds == ["rms norm", "silu", "add"]


def test_a_reduction_that_no_norm_comes_of_is_by_itself():
    mean = step("mean", REDUCTION, [(X, SHAPE)], 10, (1, 96))
    silu = step("silu", POINTWISE, [10], 11, (1, 96))
    assert [found.kind for found in operations_of([mean, silu])] == ["mean", "silu"]


def attention(*, mask):
    scores, values = (1, 6, 6), (1, 6, 384)
    steps = [
        step("mul", POINTWISE, [21], 31, values),
        step("bmm", PRODUCT, [(31, values), (22, (1, 384, 6))], 32, scores),
    ]
    if mask:
        steps.append(step("add", POINTWISE, [32, (40, scores)], 33, scores))
    last = steps[-1].memory
    return [
        *steps,
        step("_safe_softmax", SOFTMAX, [last], 34, scores),
        step("_to_copy", POINTWISE, [34], 35, scores),
        step("bmm", PRODUCT, [(35, scores), (23, values)], 36, values),
        step("_to_copy", POINTWISE, [36], 37, values),
    ]


def test_an_attention_is_one_operation():
    found = only(attention(mask=False))
    assert (found.kind, found.sizes) == ("attention", (1, 6, 6, 384, 0))
    assert found.read_bytes == 3 * 2 * 6 * 384  # q, k and v


def test_an_attention_knows_of_its_mask():
    found = only(attention(mask=True))
    assert found.sizes[-1] == 1
    assert found.read_bytes == 3 * 2 * 6 * 384 + 2 * 36


def test_a_softmax_without_products_is_by_itself():
    assert only([step("_softmax", SOFTMAX, [X], 2)]).kind == "_softmax"


def test_a_product_has_its_sizes():
    alone = step("addmm", PRODUCT, [(1, (512,)), (2, (24, 256)), (3, (256, 512))], 4, (24, 512))
    assert only([alone]).sizes == (1, 24, 256, 512)


def test_equal_operations_are_counted():
    other = [
        replace(
            norm_step,
            memory=norm_step.memory + 100,
            operands=tuple(
                replace(operand, memory=operand.memory + 100) for operand in norm_step.operands
            ),
        )
        for norm_step in rms_norm()
    ]
    (times,) = operations_of([*rms_norm(), *other]).values()
    assert times == 2


def test_convolutions_are_not_among_them():
    assert not operations_of([step("fused_convolution", CONVOLUTION, [X], 2)])


def test_every_step_is_in_one_operation():
    steps = [*rms_norm(), *attention(mask=True), step("cat", "movement", [X, 50], 51)]
    found = operations_of(steps)
    assert sum(len(operation.steps) * times for operation, times in found.items()) == len(steps)
