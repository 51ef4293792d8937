"""Records as JSON: what is read is equal to what was written, or it is refused."""

import json
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkisim.machine import TRN2, TRN3
from repetition import examples, few
from trnconv.algorithms.direct.plan import DirectPlan, PePacking
from trnconv.algorithms.direct.reduced_problem import fold
from trnconv.algorithms.winograd.plan import WinogradPlan
from trnconv.cases import BENCHMARK, EDGE, find
from trnconv.geometry import ConvShape, TransposedShape, conv_shape
from trnconv.planner.best import best_plan
from trnconv.problem.conv_problem import WEIGHT_GRADIENT, ConvProblem
from trnconv.problem.epilogue import ACTIVATIONS, ELU, RESIDUALS, Epilogue, leaky_relu
from trnconv.problem.policy import Policy
from trnconv.records import RecordError, from_json, to_json
from trnconv.runtime.pricing import Price, price

COUNT = st.integers(0, 10**6)
PASSES = st.builds(
    PePacking,
    *[COUNT] * 5,
    levels=st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple),
    own_windows=st.booleans(),
    unit=st.tuples(COUNT, COUNT),
    order=st.text(max_size=12),
)
ENDS = st.builds(
    Epilogue,
    st.sampled_from([*ACTIVATIONS, leaky_relu(0.1), ELU]),
    st.sampled_from(RESIDUALS),
    st.sampled_from(("", "float32")),
)
PROBLEMS = st.sampled_from([fold(case.shape) for case in EDGE])


def through_text(kind, record):
    return from_json(kind, json.loads(json.dumps(to_json(record))))


@examples(100)
@given(
    st.builds(
        DirectPlan,
        st.sampled_from([case.shape for case in EDGE]),
        st.sampled_from(("trn2", "trn3")),
        st.sampled_from(("bfloat16", "float32")),
        PROBLEMS,
        st.lists(PASSES, min_size=1, max_size=3).map(tuple),
        COUNT,
        COUNT,
        COUNT,
        st.tuples(COUNT, COUNT, COUNT),
        ahead=st.booleans(),
        streamed=COUNT,
        lead=st.lists(COUNT, max_size=3).map(tuple),
        epilogue=ENDS,
        rows_of=st.tuples(COUNT, COUNT),
    )
)
def test_any_direct_plan_comes_back_equal(plan):
    assert through_text(DirectPlan, plan) == plan


@given(
    st.builds(
        WinogradPlan,
        st.sampled_from([case.shape for case in BENCHMARK]),
        st.just("trn2"),
        st.just("bfloat16"),
        st.sampled_from(("F(2,3)", "F(4,3)")),
        st.integers(0, 1),
        *[COUNT] * 6,
        streamed=COUNT,
        pieces=st.lists(COUNT, max_size=3).map(tuple),
        looped=st.booleans(),
        epilogue=ENDS,
    )
)
def test_any_fast_plan_comes_back_equal(plan):
    assert through_text(WinogradPlan, plan) == plan


@few(10)
@pytest.mark.parametrize("case", EDGE, ids=lambda case: case.name)
def test_the_planners_own_plans_come_back_equal(case):
    found = price(ConvProblem(case.shape, TRN2, case.dtype))
    assert through_text(Price, found) == found


def test_a_price_says_which_kind_of_plan_it_has():
    shape = find("cogvideox_512").shape
    taken = best_plan(ConvProblem(shape, TRN3))
    assert isinstance(taken.plan, WinogradPlan)
    one = Price(1.5, 2, 3, 4, 5, "tensor", (taken,))
    assert to_json(one)["plans"][0]["plan"]["is"] == "WinogradPlan"
    assert through_text(Price, one) == one


@dataclass(frozen=True)
class Either:
    shape: ConvShape | TransposedShape
    policy: Policy | None = None


@pytest.mark.parametrize("policy", [None, Policy("direct", 3.0)])
def test_one_of_several_classes_comes_back_as_itself(policy):
    transposed = TransposedShape(1, 2, 3, (1, 4, 4), (1, 8, 8), (1, 2, 2), (1, 2, 2))
    for shape in (transposed, EDGE[0].shape):
        assert through_text(Either, Either(shape, policy)) == Either(shape, policy)


END = {"activation": "silu"}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({**END, "colour": 1}, "unknown ['colour']"),
        ({"activation": 3}, "Epilogue.activation: str expected, not 3"),
        ([], "Epilogue: Epilogue expected"),
        (None, "Epilogue: Epilogue expected"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(document, words):
    with pytest.raises(RecordError) as refusal:
        from_json(Epilogue, document)
    assert words in str(refusal.value)


SHAPE = to_json(EDGE[0].shape)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"size": [1, 2]}, "list of 3 expected"),
        ({"size": 3}, "list expected"),
        ({"size": [1, 2, True]}, "int expected, not True"),
        ({"batch": 1.0}, "int expected, not 1.0"),
        ({"batch": None}, "int expected, not None"),
    ],
)
def test_tuples_and_numbers_are_read_strictly(change, words):
    with pytest.raises(RecordError) as refusal:
        from_json(ConvShape, {**SHAPE, **change})
    assert words in str(refusal.value)


def test_a_missing_field_is_named():
    with pytest.raises(RecordError, match=r"missing \['kernel'\]"):
        from_json(ConvShape, {name: each for name, each in SHAPE.items() if name != "kernel"})


def test_fields_at_their_default_are_left_out_and_come_back():
    epilogue = Epilogue("silu")
    assert to_json(epilogue) == END
    assert through_text(Epilogue, replace(epilogue, dtype="float32")) == Epilogue(
        "silu", dtype="float32"
    )


PAIRS = {
    "columns": ConvProblem(find("j").shape, TRN2),
    "lines": ConvProblem(
        conv_shape((1, 512, 3, 8, 8), (512, 1, 3, 3, 3), padding=1, groups=512),
        TRN2,
        algorithms=("depthwise",),
    ),
    "outputs": ConvProblem(
        conv_shape((1, 70, 4, 8, 8), (70, 1, 3, 3, 3), padding=1, groups=70),
        TRN2,
        algorithms=("depthwise",),
    ),
    "ins": ConvProblem(
        conv_shape((1, 96, 3, 8, 16), (96, 96, 3, 3, 3), padding=1), TRN2, direction=WEIGHT_GRADIENT
    ),
}


@pytest.mark.parametrize("share", PAIRS)
def test_prices_of_two_cores_come_back(share):
    priced = price(PAIRS[share], cores=2)
    assert getattr(priced.plan.plan, f"{share}_of") not in (None, (0, 0))
    assert through_text(Price, priced) == priced
