"""Leaky ReLU and ELU at the end of a direct convolution: values, rules, price, and what refuses."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from direct_plans import direct_plan
from family_calls import arrays_of, check_member, expected, run_member
from nkisim.machine import TRN2
from random_family import FORWARD, TRANSPOSED, Member
from repetition import few
from strict_plans import broken_rule, pair_like
from tolerance import excess
from trnconv.algorithms.direct import composed_epilogue, kernel
from trnconv.algorithms.direct.algorithm import DIRECT
from trnconv.algorithms.direct.cost import cost_of
from trnconv.algorithms.winograd.algorithm import WINOGRAD
from trnconv.errors import UnsupportedError
from trnconv.geometry import conv_shape, transposed_shape
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.epilogue import Epilogue, epilogue_of, is_composed, slope_of
from trnconv.problem.policy import FAST, Policy
from trnconv.records import from_json, to_json
from trnconv.runtime import time_plan

LEAKY, STEEP, ELU = "leaky_relu:0.1", "leaky_relu:1.0", "elu"
ACTIVATIONS = (LEAKY, "leaky_relu:0.01", STEEP, ELU)
RESIDUALS = ("none", "before", "after")
LINE = conv_shape(
    (1, 24, 1, 1, 700), (40, 24, 1, 1, 7), padding=((0, 0), (0, 0), (9, 9)), dilation=(1, 1, 3)
)
VIDEO = conv_shape((1, 5, 3, 8, 9), (7, 5, 3, 3, 3), padding=1)
UP = transposed_shape((1, 16, 40), (16, 8, 8), stride=4, padding=2)
BUSY = conv_shape((1, 16, 1, 1, 20_000), (128, 16, 1, 1, 1))  # few products: engines end sums
BF16_STEP = 2.0**-7  # at 1


def member(end, shape=LINE, machine="trn2", cores=1, dtype="bfloat16", kind=FORWARD):
    rank = 3 if shape is VIDEO else 1
    return Member(
        number=1,
        kind=kind,
        shape=shape,
        rank=rank,
        dtype=dtype,
        bias=True,
        machine=machine,
        cores=cores,
        exact=False,
        epilogue=end,
    )


ENDS = [epilogue_of(*end) for end in product(ACTIVATIONS, RESIDUALS, ("", "float32"))]


@few(8)
@pytest.mark.parametrize("end", ENDS, ids=str)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_values_are_the_reference_within_the_bound(end, dtype):
    check_member(member(end, dtype=dtype))


@few(4)
@pytest.mark.parametrize("activation", [LEAKY, ELU])
@pytest.mark.parametrize(("machine", "cores"), [("trn1", 1), ("trn2", 2), ("trn3", 1), ("trn3", 2)])
def test_on_every_machine(activation, machine, cores):
    check_member(member(epilogue_of(activation, "before", ""), VIDEO, machine, cores))
    check_member(member(epilogue_of(activation, "none", ""), LINE, machine, cores))


@pytest.mark.parametrize("activation", [LEAKY, ELU])
def test_behind_a_transposed_convolution(activation):
    check_member(member(epilogue_of(activation, "none", ""), UP, kind=TRANSPOSED))


@pytest.mark.parametrize(("asked", "done"), [(LEAKY, "leaky_relu:0.11"), (ELU, "leaky_relu:1.0")])
def test_the_bound_notices_another_slope(asked, done):
    problem = member(epilogue_of(asked, "none", ""))
    arrays = arrays_of(problem)
    exact, bound = expected(problem, *arrays)
    other = run_member(replace(problem, epilogue=epilogue_of(done, "none", "")), *arrays)
    assert (excess(other, exact, bound) > 0).any()


def test_a_bias_without_the_slope_is_noticed(monkeypatch):
    plain = composed_epilogue.leaky_relu
    monkeypatch.setattr(
        kernel, "leaky_relu", lambda core, y, z, bias, _: plain(core, y, z, bias, bias)
    )
    with pytest.raises(AssertionError):
        check_member(member(epilogue_of(LEAKY, "none", "")))


def test_large_values_stay_themselves():
    """exp overflows above 88: the smaller of Inf and z is z."""
    shape = conv_shape((1, 1, 1, 1, 4), (1, 1, 1, 1, 1))
    problem = replace(member(epilogue_of(ELU, "none", ""), shape, dtype="float32"), bias=False)
    x = np.float32([-1000, -90, 90, 1000]).reshape(1, 1, 1, 1, 4)
    found = run_member(problem, x, np.ones((1, 1, 1, 1, 1), np.float32), None, None)
    assert found.ravel().tolist() == [-1, -1, 90, 1000]


@pytest.mark.parametrize("activation", [LEAKY, ELU])
def test_bfloat16_is_rounded_once(activation):
    """As if float32 had been rounded at the end: half a step, where sums are exact."""
    shape = conv_shape((1, 1, 1, 1, 4096), (1, 1, 1, 1, 1))
    problem = replace(member(epilogue_of(activation, "none", ""), shape), bias=False)
    x = np.linspace(-6, 6, 4096, dtype=np.float32).astype(arrays_of(problem)[0].dtype)
    x = x.reshape(1, 1, 1, 1, 4096)
    w = np.ones((1, 1, 1, 1, 1), x.dtype)
    found = run_member(problem, x, w, None, None).astype(np.float64)
    exact, _ = expected(problem, x, w, None, None)
    step = BF16_STEP * 2.0 ** np.floor(np.log2(np.maximum(np.abs(exact), 2.0**-126)))
    assert (np.abs(found - exact) <= 0.5001 * step + 2.0**-22).all()


@few(4)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("residual", RESIDUALS)
@pytest.mark.parametrize("shape", [LINE, VIDEO])
def test_no_device_rule_is_broken(activation, residual, shape):
    plan = replace(direct_plan(shape), epilogue=epilogue_of(activation, residual, ""))
    assert not DIRECT.violations(plan)
    assert not broken_rule(plan)
    pair = pair_like(plan)
    assert pair is not None
    assert not broken_rule(*pair)


@pytest.mark.parametrize(
    "end", [epilogue_of(*end) for end in product((LEAKY, ELU), RESIDUALS, ("",))], ids=str
)
def test_the_price_of_an_eviction_is_that_of_the_schedule(end):
    """The busier of the two engines, within a tenth: start-ups of the first and last tile."""
    plan = replace(direct_plan(BUSY), epilogue=end)
    timeline = time_plan(plan)
    busy = max(timeline.busy_ns[name] for name in ("vector", "scalar"))
    assert cost_of(plan).busy_ns("evict") == pytest.approx(busy, rel=0.1)


def test_a_slope_takes_a_second_column_for_each_bias():
    plan = direct_plan(LINE)
    more = cost_of(replace(plan, epilogue=epilogue_of(LEAKY, "none", ""))).sbuf_bytes
    assert more - cost_of(plan).sbuf_bytes == 4
    assert (
        cost_of(replace(plan, epilogue=epilogue_of(ELU, "none", ""))).sbuf_bytes
        == cost_of(plan).sbuf_bytes
    )


def test_elu_needs_sums_in_place():
    careful = replace(direct_plan(LINE), machine_name="trn2+no-psum-in-place")
    assert not DIRECT.violations(replace(careful, epilogue=epilogue_of(LEAKY, "before", "")))
    (broken,) = DIRECT.violations(replace(careful, epilogue=epilogue_of(ELU, "none", "")))
    assert "replaces sums in PSUM" in broken
    check_member(member(epilogue_of(LEAKY, "before", "float32"), machine="trn2+no-psum-in-place"))


def test_the_winograd_algorithm_refuses_in_words():
    shape = conv_shape((1, 128, 5, 16, 16), (128, 128, 3, 3, 3), padding=(0, 1, 1))
    for activation in (LEAKY, ELU):
        problem = ConvProblem(
            shape,
            TRN2,
            epilogue=epilogue_of(activation, "none", ""),
            policy=Policy(FAST, least_macs=0),
        )
        for family in WINOGRAD.families(problem):
            assert f"{activation} in the epilogue" in WINOGRAD.unsupported(problem, family)


@pytest.mark.parametrize(
    "name",
    [
        "leaky_relu:0",
        "leaky_relu:-0.1",
        "leaky_relu:1.5",
        "leaky_relu:x",
        "leaky_relu:nan",
        "elu:2.0",
        "snake",
    ],
)
def test_what_is_not_known_is_refused(name):
    with pytest.raises(UnsupportedError, match=name):
        epilogue_of(name, "none", "")


def test_a_slope_is_written_in_one_way():
    assert epilogue_of("leaky_relu", "none", "").activation == "leaky_relu:0.01"
    assert epilogue_of("leaky_relu:1e-1", "none", "").activation == LEAKY
    assert slope_of(LEAKY) == 0.1
    assert slope_of(ELU) == slope_of("relu") == 0
    assert [is_composed(name) for name in (LEAKY, ELU, "relu")] == [True, True, False]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_records_keep_the_slope(activation):
    epilogue = epilogue_of(activation, "before", "float32")
    assert from_json(Epilogue, to_json(epilogue)) == epilogue
