"""Depthwise convolutions on the Vector, Scalar and GpSimd engines: values, plans and prices."""

from dataclasses import replace

import numpy as np
import pytest

from conv_arrays import numpy_dtype
from core_pairs import every_pair
from nkisim.machine import MACHINES, TRN1, TRN2
from parser_lint import lint
from repetition import few
from tolerance import assert_within, excess, output_rounding
from trnconv.algorithms.depthwise import kernel as kernels
from trnconv.algorithms.depthwise.cost import cost_of
from trnconv.algorithms.depthwise.plan import DepthwisePlan, PositionBox, valid_outputs
from trnconv.algorithms.depthwise.rules import violations
from trnconv.algorithms.direct.plan import DirectPlan
from trnconv.errors import PlanError, ShapeError, UnsupportedError
from trnconv.geometry import conv_shape
from trnconv.planner.best import choose, only, searched_plan
from trnconv.planner.explain import explain_algorithms
from trnconv.problem.conv_problem import ConvProblem
from trnconv.reference import forward
from trnconv.runtime import LaunchOptions, convolve, time_plan
from trnconv.runtime.depthwise import OTHERS, TENSOR, depthwise, depthwise_shape, plan_depthwise

SIGNAL = depthwise_shape((8, 512, 2048), (512, 1, 3), padding=1)
VIDEO = depthwise_shape((1, 512, 6, 30, 52), (512, 1, 3, 3, 3), padding=1)
FLOAT32_HALF_STEP = 2.0**-24

CALLS = {
    "signal": ((3, 50, 40), (50, 1, 3), {"padding": 1}),
    "no padding": ((1, 130, 33), (130, 1, 4), {}),
    "causal": ((1, 7, 30), (7, 1, 4), {"padding": ((3, 0),)}),
    "one tap": ((2, 6, 17), (6, 1, 1), {}),
    "two tiles of lines": ((2, 140, 12), (140, 1, 3), {"padding": 1}),
    "multiplier": ((2, 70, 20), (210, 1, 3), {"padding": 1}),
    "stride": ((1, 20, 41), (20, 1, 5), {"stride": 3, "padding": 2}),
    "dilation": ((1, 20, 41), (20, 1, 3), {"dilation": 4, "padding": 4}),
    "image": ((1, 33, 9, 11), (33, 1, 3, 3), {"padding": 1}),
    "image, stride": ((2, 16, 9, 11), (32, 1, 3, 3), {"stride": 2, "padding": 1}),
    "image, 7 x 7": ((1, 8, 12, 10), (8, 1, 7, 7), {"padding": 3}),
    "video": ((1, 12, 4, 5, 6), (12, 1, 3, 3, 3), {"padding": 1}),
    "causal video": ((1, 12, 4, 5, 6), (12, 1, 3, 3, 3), {"padding": ((2, 0), 1, 1)}),
    "video, all at once": (
        (1, 5, 5, 6, 7),
        (10, 1, 2, 3, 3),
        {"stride": (1, 2, 2), "dilation": (2, 1, 2), "padding": (1, 1, 3)},
    ),
    "beyond the image": ((1, 6, 2, 3), (6, 1, 3, 3), {"padding": 4, "dilation": 2}),
}
calls = pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))


def arrays(call, dtype):
    x_shape, w_shape, options = call
    rng = np.random.default_rng(len(x_shape) + sum(x_shape) + sum(w_shape))
    given = [rng.standard_normal(one, np.float32) for one in (x_shape, w_shape, w_shape[:1])]
    return [one.astype(numpy_dtype(dtype)) for one in given], options


def exact_and_bound(call, given, dtype):
    """The reference, and how far a float32 sum of each output's own taps may be from it.

    As in tolerance.py, with one product a tap: every term passes through at most as many additions
    as there are terms, the bias among them, and its product is rounded once.
    """
    x_shape, w_shape, options = call
    x, w, bias = given
    shape = conv_shape(x_shape, w_shape, groups=x_shape[1], **options)
    sizes = (shape.batch, shape.c_in, *shape.size), (shape.c_out, 1, *shape.kernel)
    x5, w5 = x.reshape(sizes[0]), w.reshape(sizes[1])
    exact = forward(x5, w5, bias, shape)
    magnitude = forward(np.abs(x5), np.abs(w5), np.abs(bias), shape)
    count = (shape.taps() + 1) * FLOAT32_HALF_STEP
    summing = magnitude * (count / (1 - count)) + shape.taps() * 2.0**-150
    bound = summing + output_rounding(np.abs(exact) + summing, numpy_dtype(dtype))
    out = (shape.batch, shape.c_out, *shape.out_sizes()[5 - len(x_shape) :])
    return exact.reshape(out), bound.reshape(out)


@few(9)
@calls
@pytest.mark.parametrize("machine", list(MACHINES))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_values(call, machine, dtype):
    (x, w, bias), options = arrays(call, dtype)
    done = depthwise(x, w, bias, **options, machine=machine, engines=OTHERS)
    assert isinstance(done.plan, DepthwisePlan)
    assert done.y.dtype == x.dtype
    assert_within(done.y, *exact_and_bound(call, (x, w, bias), dtype))


@few(9)
@calls
@pytest.mark.parametrize(("vector", "gpsimd"), [(1, 0), (2, 1), (1, 2), (3, 2)])
def test_values_of_small_blocks_and_pieces(call, vector, gpsimd):
    """Many blocks, pieces at every border, groups across blocks: nothing is overwritten early."""
    (x, w, bias), options = arrays(call, "float32")
    shape = depthwise_shape(x.shape, w.shape, **options)
    block = tuple(min(n, most) for n, most in zip(shape.out_sizes(), (2, 4, 9), strict=True))
    piece = tuple(min(n, most) for n, most in zip(block, (1, 3, 4), strict=True))
    plan = DepthwisePlan(shape, "trn2", "float32", block, piece, vector, gpsimd, 99, 99)
    assert not violations(plan)
    plan = replace(plan, windows=fewest(plan, "windows"), outs=fewest(plan, "outs"))
    done = depthwise(x, w, bias, **options, plan=plan)
    assert_within(done.y, *exact_and_bound(call, (x, w, bias), "float32"))


def fewest(plan, field):
    return next(n for n in range(1, 99) if not violations(replace(plan, **{field: n})))


@few(3)
@calls
def test_both_ways_agree_and_bias_may_be_left_out(call):
    (x, w, bias), options = arrays(call, "float32")
    for engines in (TENSOR, OTHERS):
        done = depthwise(x, w, **options, engines=engines)
        assert isinstance(done.plan, DirectPlan) == (engines == TENSOR)
        assert_within(done.y, *exact_and_bound(call, (x, w, np.zeros_like(bias)), "float32"))


@few(3)
@calls
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_convolution_with_as_many_groups_takes_the_faster_algorithm(call, dtype):
    """By `convolve`, which knows nothing of depthwise convolutions."""
    (x, w, bias), options = arrays(call, dtype)
    done = convolve(x, w, bias, **options, groups=x.shape[1], launch=LaunchOptions(cores=1))
    ((plan,),) = done.plans
    shape = conv_shape(x.shape, w.shape, groups=x.shape[1], **options)
    offers = choose(ConvProblem(shape, TRN2, dtype)).offers
    assert {offer.algorithm for offer in offers} == {"direct", "depthwise"}
    fastest = min(offers, key=lambda offer: offer.best.cost.total_ns)
    assert plan == fastest.best.plan
    if isinstance(plan, DepthwisePlan):  # else it is the direct kernel, whose bound is another
        assert_within(done.y, *exact_and_bound(call, (x, w, bias), dtype))


@few(1)
@pytest.mark.parametrize("name", ["signal", "multiplier", "image, stride", "causal video"])
def test_a_changed_tap_shows_in_its_own_channel_and_nowhere_else(name):
    (x, w, bias), options = arrays(CALLS[name], "float32")
    exact, bound = exact_and_bound(CALLS[name], (x, w, bias), "float32")
    for channel, tap in (
        (0, 0),
        (w.shape[0] - 1, w[0].size - 1),
        (w.shape[0] // 2, w[0].size // 2),
    ):
        changed = w.copy()
        changed[channel].reshape(-1)[tap] += 1
        y = depthwise(x, changed, bias, **options, engines=OTHERS).y
        wrong = np.flatnonzero((excess(y, exact, bound) > 0).any(axis=(0, *range(2, y.ndim))))
        assert wrong.tolist() == [channel]


@few(1)
@pytest.mark.parametrize("column", [0, 1, 5])
def test_a_wrong_filter_column_shows(monkeypatch, column):
    """The kernel reads what the program says: one column off is outside the bound."""
    call = CALLS["image"]
    (x, w, bias), options = arrays(call, "float32")
    exact, bound = exact_and_bound(call, (x, w, bias), "float32")
    right = kernels.Tiles.number

    def off_by_one(tiles, step, asked):
        return right(tiles, step, asked + 1 if asked == column else asked)

    monkeypatch.setattr(kernels.Tiles, "number", off_by_one)
    y = depthwise(x, w, bias, **options, engines=OTHERS).y
    assert (excess(y, exact, bound) > 0).any()


def test_a_non_finite_input_stays_in_its_channel_and_reach():
    x, w = np.ones((1, 4, 20), np.float32), np.ones((4, 1, 3), np.float32)
    x[0, 2, 10] = np.inf
    y = depthwise(x, w, padding=1, engines=OTHERS).y
    expected = np.zeros(y.shape, bool)
    expected[0, 2, 9:12] = True
    assert np.array_equal(~np.isfinite(y), expected)


def test_the_kernel_is_in_the_subset():
    assert not lint(kernels.depthwise).findings


@few(1)
@pytest.mark.parametrize(
    ("shape", "machine", "dtype", "most_us"),
    [
        (SIGNAL, TRN1, "float32", 300),
        (SIGNAL, TRN2, "float32", 200),
        (VIDEO, TRN2, "bfloat16", 452),
    ],
)
def test_the_choice_is_fast(shape, machine, dtype, most_us):
    plan = plan_depthwise(shape, machine.name, dtype)
    assert time_plan(plan).makespan_ns <= 1000 * most_us


def without_tensor_engine(shape, machine, dtype):
    """The best plan of the depthwise algorithm, priced."""
    return searched_plan(only(ConvProblem(shape, machine, dtype), "depthwise"))


@few(1)
@pytest.mark.parametrize("machine", list(MACHINES.values()), ids=list(MACHINES))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [SIGNAL, VIDEO], ids=["signal", "video"])
def test_the_cost_model_is_close_to_the_timeline(shape, machine, dtype):
    best = without_tensor_engine(shape, machine, dtype)
    line = time_plan(best.plan)
    assert best.cost.total_ns == pytest.approx(line.makespan_ns, rel=0.05)
    assert best.cost.hbm_bytes == line.hbm_bytes
    assert best.cost.instructions == pytest.approx(line.static_instructions, rel=0.03)
    assert line.memory.sbuf_peak_bytes_per_partition <= best.cost.sbuf_bytes


def test_gpsimd_helps_where_sums_are_the_bound():
    best = without_tensor_engine(VIDEO, TRN2, "float32")
    alone = replace(best.plan, gpsimd_pieces=0)
    assert best.plan.gpsimd_pieces > 0
    assert time_plan(alone).makespan_ns > 1.4 * time_plan(best.plan).makespan_ns


def test_a_tensor_beyond_32_bits_is_refused_in_words():
    large = depthwise_shape((5, 512, 1, 1000, 1000), (512, 1, 1, 3, 3), padding=(0, 1, 1))
    with pytest.raises(PlanError, match="offsets have 32 bits"):
        without_tensor_engine(large, TRN2, "bfloat16")


def test_the_choice_is_between_engines_and_is_explained():
    on_others = choose(ConvProblem(SIGNAL, TRN2, "float32"))
    on_tensor = choose(ConvProblem(VIDEO, TRN2, "bfloat16"))
    assert isinstance(on_others.taken.plan, DepthwisePlan)
    assert isinstance(on_tensor.taken.plan, DirectPlan)
    for choice, name, other in (
        (on_others, "depthwise", "direct"),
        (on_tensor, "direct", "depthwise"),
    ):
        problem, *lines = explain_algorithms(choice).splitlines()
        assert "every time is modelled by the cost model" in problem
        assert all("bound by" in line for line in lines)
        (taken,) = [line for line in lines if line.startswith("  taken")]
        (lost,) = [line for line in lines if not line.startswith("  taken")]
        assert f"x  {name}, " in taken
        assert f"x  {other}, " in lost


PLAN = DepthwisePlan(SIGNAL, "trn1", "float32", (1, 1, 2048), (1, 1, 1024), 2, 0, 3, 4)


def test_a_plan_that_the_tests_below_break_is_legal():
    assert violations(PLAN) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"piece": (1, 1, 4096)}, "piece of"),
        ({"block_outs": (1, 1, 4096)}, "block of"),
        ({"vector_pieces": 0}, "Vector"),
        ({"vector_pieces": 4}, "PSUM of trn1 has 16384"),
        ({"windows": 2}, "2 tiles for windows: groups of 2 pieces need 3"),
        ({"outs": 3}, "3 tiles for outputs: groups of 2 pieces need 4"),
        ({"outs": 40}, "SBUF of trn1 has 180224"),
        ({"dtype": "int32"}, "dtype int32"),
        ({"shape": replace(SIGNAL, modes=("zeros", "zeros", "reflect"))}, "zeros only"),
        ({"shape": replace(SIGNAL, groups=4)}, "4 groups of 512 channels"),
    ],
)
def test_broken_rules_are_named(change, said):
    broken = violations(replace(PLAN, **change))
    assert any(said in one for one in broken), broken


def test_what_is_too_long_names_the_tensor_engine():
    large = depthwise_shape((1, 512, 4, 360, 640), (512, 1, 3, 3, 3), padding=1)
    with pytest.raises(PlanError, match=r"static instructions.*engines='tensor'"):
        plan_depthwise(large, "trn2", "bfloat16", OTHERS)


def test_what_is_too_long_for_any_budget_says_so():
    """It is not looked at, which would take minutes; that is no reason to blame SBUF."""
    large = depthwise_shape((1, 512, 4, 720, 1280), (512, 1, 5, 5, 5), padding=2)
    with pytest.raises(PlanError, match=r"depthwise: some \d{6,} static instructions.*100000"):
        choose(only(ConvProblem(large, TRN2, budget=10**9), "depthwise"))


def test_refusals():
    x = np.ones((1, 4, 8), np.float32)
    with pytest.raises(ShapeError, match="convolve"):
        depthwise(x, np.ones((4, 2, 3), np.float32))
    with pytest.raises(ShapeError, match="multiplier"):
        depthwise(x, np.ones((6, 1, 3), np.float32))
    with pytest.raises(UnsupportedError, match="int32"):
        depthwise(x.astype(np.int32), np.ones((4, 1, 3), np.int32))
    with pytest.raises(PlanError, match="engines='scalar'"):
        depthwise(x, np.ones((4, 1, 3), np.float32), engines="scalar")


def test_boxes():
    box = PositionBox((0, 0, 0), (3, 5, 7))
    inner = PositionBox((1, 0, 2), (3, 4, 7))
    left = box.without(inner)
    seen = np.zeros((3, 5, 7), int)
    for one in (inner, *left):
        seen[tuple(slice(a, b) for a, b in zip(one.first, one.end, strict=True))] += 1
    assert (seen == 1).all()


def test_valid_outputs_by_counting():
    shape = conv_shape((1, 2, 11), (2, 1, 4), stride=3, dilation=2, padding=5, groups=2)
    for tap in range(4):
        inside = [
            out for out in range(shape.out_size(2)) if 0 <= shape.in_position(2, out, tap) < 11
        ]
        box = valid_outputs(shape, (0, 0, tap))
        assert list(range(box.first[2], box.end[2])) == inside


def test_an_estimate_counts_more_for_more_taps():
    longer = depthwise_shape((8, 512, 2048), (512, 1, 9), padding=4)
    assert vector_ns(replace(PLAN, shape=longer)) == pytest.approx(3 * vector_ns(PLAN), rel=0.01)


def vector_ns(plan):
    return cost_of(plan).busy_ns("vector")


@few(6)
@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
@pytest.mark.parametrize("machine", ["trn2", "trn3"])
def test_values_of_two_cores(call, machine):
    (x, w, bias), options = arrays(call, "bfloat16")
    launch = LaunchOptions(machine, 2, algorithms=("depthwise",))
    done = convolve(x, w, bias, **options, groups=x.shape[1], launch=launch)
    ((first, second),) = done.plans
    assert isinstance(first, DepthwisePlan)
    assert first != second
    assert_within(done.y, *exact_and_bound(call, (x, w, bias), "bfloat16"))


@few(2)
@pytest.mark.parametrize(
    ("call", "cuts"),
    [
        (((3, 130, 9, 6), (260, 1, 3, 3), {"padding": 1}), ["lines"]),
        (((1, 70, 5, 6, 7), (70, 1, 3, 3, 3), {"padding": 1}), ["rows", "columns"]),
        (((1, 70, 1, 16), (70, 1, 1, 4), {"padding": (0, 2)}), ["columns"]),
        (((1, 70, 8, 7, 5), (70, 1, 3, 3, 3), {"padding": 1}), ["frames", "rows"]),
        (((1, 300, 5, 6, 7), (300, 1, 3, 3, 3), {"padding": 1}), ["lines", "rows", "columns"]),
    ],
)
def test_values_of_every_cut_for_two_cores(call, cuts):
    (x, w, bias), options = arrays(call, "float32")
    shape = conv_shape(x.shape, w.shape, groups=x.shape[1], **options)
    problem = ConvProblem(shape, TRN2, "float32", algorithms=("depthwise",))
    tried = list(every_pair(problem))
    rows = (0, shape.out_size(1))
    whole = {"lines": None, "rows": rows, "frames": None, "columns": None}
    for (share, plans), cut in zip(tried, cuts, strict=True):
        assert [name for name, all_of in whole.items() if getattr(share, name) != all_of] == [cut]
        launch = LaunchOptions(cores=2, plans=plans)
        done = convolve(x, w, bias, **options, groups=x.shape[1], launch=launch)
        assert_within(done.y, *exact_and_bound(call, (x, w, bias), "float32"))
