"""The cost model against the program it prices: memory, matmul columns, instructions."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from direct_plans import direct_plan, direct_plans
from nkisim.compiler_count import matmul_instructions
from nkisim.machine import TRN2
from repetition import few
from trnconv.algorithms import kernel_parts
from trnconv.algorithms.direct import core, kernel
from trnconv.algorithms.direct.array.m_layout import out_tiles
from trnconv.algorithms.direct.cost import cost_of, floor_ns
from trnconv.algorithms.direct.lower import lower
from trnconv.geometry import conv_shape, transposed_shape
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.epilogue import epilogue_of
from trnconv.runtime import trace_plan

COUNT = 30
MEMSETS = "memset"  # borders are not in the cost model: windows are counted away from them
LONG = 200  # instructions from which on a few loads at borders do not matter


def random_shape(number):
    """Small enough to trace in a moment, large enough for several blocks."""
    rng = np.random.default_rng([5, number])
    c_in, c_out = (int(rng.choice([3, 16, 40, 64, 96, 130, 192])) for _ in "io")
    groups = int(rng.choice([1, 1, 1, 8]))
    c_in, c_out = -(-c_in // groups) * groups, -(-c_out // groups) * groups
    x = (1, c_in, int(rng.integers(1, 5)), int(rng.integers(9, 40)), int(rng.integers(20, 70)))
    if number % 3 == 2:
        kernel = int(rng.choice([2, 3, 4]))
        weights = (c_in, c_out // groups, 1, kernel, kernel)
        padding = (0, kernel // 2, kernel // 2)
        return transposed_shape(x, weights, stride=(1, 2, 2), padding=padding, groups=groups)
    time = int(rng.choice([1, 3]))
    stride = (1, *[int(rng.choice([1, 1, 2]))] * 2)
    weights = (c_out, c_in // groups, time, 3, 3)
    return conv_shape(x, weights, stride=stride, padding=(time // 2, 1, 1), groups=groups)


def random_plan(number):
    """The planner's choice, or one that lost; some as hardware loops."""
    plans = [priced.plan for priced in direct_plans(random_shape(number))]
    plan = plans[number % min(4, len(plans))]
    if number % 5 == 4:
        plan = replace(plan, lead=(), ahead=False, looped=True)
    return plan


plans = pytest.mark.parametrize("number", range(COUNT))


@pytest.fixture
def tensors(monkeypatch):
    """First byte and end of every tensor that the kernel asks for in SBUF, as it asks."""
    asked = []
    place = kernel_parts.sbuf

    def recording(shape, dtype, address):
        tensor = place(shape, dtype, address)
        itemsize = {"int32": 4, "float32": 4}.get(str(tensor.dtype), 2)
        asked.append((address, address + shape[1] * itemsize))
        return tensor

    for module in (core, kernel_parts):
        monkeypatch.setattr(module, "sbuf", recording)
    return asked


@few(8)
@plans
def test_sbuf_is_what_the_kernel_asks_for_to_the_byte(number, tensors):
    plan = random_plan(number)
    tensors.clear()  # those of plans that the planner scheduled
    run = trace_plan(plan)
    needed = cost_of(plan).sbuf_bytes
    distinct = sorted(set(tensors))
    for (_, end), (first, _) in pairwise(distinct):
        assert end <= first  # nothing overlaps
    assert needed == distinct[-1][1] + not_asked_for(plan)
    # what is alive at once is less where slots stay empty: small problems have few windows
    assert run.memory.sbuf_peak_bytes_per_partition <= needed


def not_asked_for(plan):
    """Bytes that are counted and not needed: few, and known.

    Tiles with the same channels (phases of a transposed convolution) share a bias column, and a
    loop of one iteration is not a loop, so that it reads no places.
    """
    recipe = lower(plan).recipe
    biases = sum(len(out_tiles(packing)) for packing in plan.passes) - recipe.bias_columns
    loops = any(sweep.looped for sweep in recipe.sweeps)
    cells = 2 * plan.body_blocks if plan.looped and not loops else 0
    return 4 * (biases + cells)


def matmul_columns(items, times=1):
    """Columns of products, and of the zeros that open sums which no product writes whole."""
    products = zeros = 0
    for item in items:
        if hasattr(item, "body"):
            more = matmul_columns(item.body, times * item.trips)
            products, zeros = products + more[0], zeros + more[1]
        elif item.op == "nc_matmul":
            columns = times * item.writes[0].layout.elems
            stationary, moving = item.reads[0].allocation, item.reads[1].allocation
            if stationary.name == moving.name:
                zeros += columns
            else:
                products += columns
    return products, zeros


@few(8)
@plans
def test_matmul_columns_are_counted_exactly(number):
    plan = random_plan(number)
    products, _ = matmul_columns(trace_plan(plan).trace.items)
    assert cost_of(plan).columns == products


@pytest.fixture
def left_out(monkeypatch):
    """Views of the products that a kernel leaves out, since they read padding and nothing else."""
    views = []
    multiply = kernel.add_product

    def recording(total, stationary, window, view, matmul):
        tile = total.tile
        rows = min(tile.i_end, view.end_i) - max(tile.i, view.first_i)
        columns = min(tile.j_end, view.end_j) - max(tile.j, view.first_j)
        if rows <= 0 or columns <= 0:
            views.append(view)
        multiply(total, stationary, window, view, matmul)

    monkeypatch.setattr(kernel, "add_product", recording)
    return views


@few(8)
@plans
def test_instructions_are_counted_within_a_tenth(number, left_out):
    """Last blocks that are one stack high are counted with their products of padding alone."""
    plan = random_plan(number)
    left_out.clear()  # those of plans that the planner scheduled
    trace = trace_plan(plan).trace
    counted = trace.compiler_count - sum(step.op == MEMSETS for step in trace.instructions())
    counted += matmul_instructions(plan.dtype) * len(left_out)
    borders = 0 if counted >= LONG else LONG // 10
    assert cost_of(plan).instructions == pytest.approx(counted, rel=0.1, abs=borders)


@pytest.mark.slow
def test_random_plans_are_of_all_kinds():
    found = [random_plan(number) for number in range(COUNT)]
    assert sum(plan.reduced.phases != (1, 1, 1) for plan in found) == COUNT // 3
    assert sum(plan.looped for plan in found) == COUNT // 5
    assert sum(plan.reduced.c_in < plan.reduced.channels for plan in found) >= 3
    assert len({plan.passes for plan in found}) > COUNT // 2


def test_an_end_costs_eviction_and_a_residual_costs_traffic():
    shape = conv_shape((1, 96, 4, 24, 64), (96, 96, 3, 3, 3), padding=1)
    plan = direct_plan(shape)
    plain = cost_of(plan)
    ended = cost_of(replace(plan, epilogue=epilogue_of("silu", "none", "")))
    assert ended.hbm_bytes == plain.hbm_bytes
    assert ended.busy_ns("evict") > plain.busy_ns("evict")
    added = cost_of(replace(plan, epilogue=epilogue_of("silu", "after", "")))
    assert added.hbm_bytes - plain.hbm_bytes == 2 * plan.reduced.y_elems()
    wide = cost_of(replace(plan, epilogue=epilogue_of("identity", "none", "float32")))
    assert wide.hbm_bytes - plain.hbm_bytes == 2 * plan.reduced.y_elems()


@pytest.mark.parametrize("number", range(COUNT))
def test_no_plan_takes_less_than_the_products_of_the_array(number):
    shape = random_shape(number)
    least = min(priced.cost.busy_ns("tensor") for priced in direct_plans(shape))
    assert 0 < floor_ns(ConvProblem(shape, TRN2)) <= least


@pytest.mark.parametrize(("padding", "met"), [(0, 10 * 10 * 9), (1, 34 * 34)])
def test_products_are_counted_where_a_tap_meets_the_input(padding, met):
    """Of a 3x3 on 12x12: 10x10 outputs of 9 taps; with padding, 10 x 3 + 2 x 2 pairs an axis."""
    shape = conv_shape((1, 128, 12, 12), (128, 128, 3, 3), padding=padding)
    columns = floor_ns(ConvProblem(shape, TRN2)) * TRN2.timing.pe_columns_per_ns
    assert columns == pytest.approx(met)
