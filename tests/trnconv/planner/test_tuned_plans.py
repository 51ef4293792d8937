"""Tuned plans: stored as text, used by the planner, refused when they do not fit."""

import json
from dataclasses import replace

import pytest

from nkisim.machine import TRN2, TRN3
from trnconv.cases import find
from trnconv.errors import PlanError, TrnconvError
from trnconv.geometry import conv_shape
from trnconv.planner.best import best_plan, searched_plan
from trnconv.planner.table import ALGORITHMS
from trnconv.planner.tuned_file import TunedError, TunedPlan, key_of, read, stamp, written
from trnconv.planner.tuned_plans import ENVIRONMENT, TunedWarning, active, tuned_plan, use_tuned
from trnconv.problem.conv_problem import ConvProblem
from trnconv.runtime.launch import time_plan
from trnconv.runtime.tuning import best_candidates, tune
from trnconv.runtime.weight_gradient import gradient_problem

PROBLEM = ConvProblem(find("wan_from_latent").shape, TRN2)
FAST = ConvProblem(find("hunyuan_512").shape, TRN2)


def other_plan(problem):
    """A legal plan that a search does not take."""
    return best_candidates(problem, 2)[1].plan


def stored(path, *problems, plan=other_plan):
    winners = [TunedPlan(key_of(one), plan(one), 1.0, 2.0, 3) for one in problems]
    path.write_text(written(problems[0].machine.name, winners))
    return path


SIGNAL = ConvProblem(
    conv_shape((8, 512, 2048), (512, 1, 3), padding=1, groups=512), TRN2, "float32"
)
FLAT = gradient_problem(conv_shape((2, 48, 9, 11), (40, 48, 1, 1)), TRN2, "bfloat16")
DOUBLED = ConvProblem(conv_shape((1, 256, 48, 64), (256, 256, 3, 3), padding=1, upsample=2), TRN2)
EVERY = {
    "direct": PROBLEM,
    "winograd": FAST,
    "winograd_upsample": DOUBLED,
    "depthwise": SIGNAL,
    "weight_gradient": FLAT,
}


@pytest.fixture
def file(tmp_path):
    return stored(tmp_path / "tuned.json", *EVERY.values())


def test_there_is_a_problem_for_every_algorithm():
    taken = {name: searched_plan(problem).plan.algorithm for name, problem in EVERY.items()}
    assert taken == {algorithm.name: algorithm.name for algorithm in ALGORITHMS}


@pytest.mark.parametrize("problem", EVERY.values(), ids=list(EVERY))
def test_the_planner_takes_a_tuned_plan(file, problem):
    before = best_plan(problem)
    with use_tuned(file):
        taken = best_plan(problem)
        assert tuned_plan(problem) == taken
    assert taken.plan == other_plan(problem) != before.plan
    assert best_plan(problem) == before


def test_a_tuned_plan_has_the_cost_that_the_planner_gives_it(file):
    expected = best_candidates(PROBLEM, 2)[1].cost
    with use_tuned(file):
        assert best_plan(PROBLEM).cost == expected


@pytest.mark.parametrize(
    "other",
    [
        replace(PROBLEM, machine=TRN3),
        replace(PROBLEM, dtype="float32"),
        replace(PROBLEM, reproducible=True),
        replace(PROBLEM, exact=True),
        replace(PROBLEM, policy=replace(PROBLEM.policy, accuracy="direct")),
        replace(PROBLEM, shape=replace(PROBLEM.shape, c_out=200)),
        replace(PROBLEM, budget=10),
    ],
    ids=["machine", "dtype", "reproducible", "exact", "policy", "shape", "budget"],
)
def test_a_tuned_plan_answers_its_own_problem_only(file, other):
    with use_tuned(file):
        assert tuned_plan(PROBLEM) is not None
        assert tuned_plan(other) is None


def test_text_is_the_same_whatever_the_order(tmp_path):
    one = stored(tmp_path / "one.json", PROBLEM, FAST).read_text()
    two = stored(tmp_path / "two.json", FAST, PROBLEM).read_text()
    assert one == two
    assert one.count('"problem"') == 2
    assert max(one.count(line) for line in ('"stamp"', '"plans"')) == 1


def test_a_file_is_added_to(tmp_path):
    first = read(stored(tmp_path / "one.json", PROBLEM))
    winner = TunedPlan(key_of(FAST), other_plan(FAST), 1.0, 2.0, 3)
    (tmp_path / "both.json").write_text(written("trn2", [winner], first))
    both = read(tmp_path / "both.json")
    assert set(both.entries) == {key_of(PROBLEM), key_of(FAST)}


def changed(path, **values):
    document = json.loads(path.read_text())
    document["stamp"].update(values)
    path.write_text(json.dumps(document))


@pytest.mark.parametrize("name", ["constants", "library"])
def test_a_file_of_another_version_is_refused(file, name):
    changed(file, **{name: "none"})
    with pytest.raises(TunedError, match="Tune again"), use_tuned(file):
        pass


HOSTILE = {
    "empty": "",
    "a list": "[]",
    "nothing in it": "{}",
    "no stamp": '{"stamp": {}, "plans": []}',
    "nested": "[" * 200_000,
    "nested stamp": '{"stamp": ' + '{"a": ' * 100_000,
    "stamp of a list": '{"stamp": [1], "plans": []}',
    "plans of words": '{"stamp": {"machine": "trn2"}, "plans": ["a", "b"]}',
    "plans of a number": '{"stamp": {"machine": "trn2"}, "plans": 3}',
    "a huge number": "9" * 6_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_file_that_is_something_else_is_refused(tmp_path, text):
    (tmp_path / "tuned.json").write_text(text)
    with pytest.raises(TunedError, match="Tune again"):
        read(tmp_path / "tuned.json")


@pytest.mark.parametrize(
    "plan", [None, 3, "direct", [], {}, {"algorithm": []}, {"algorithm": "direct"}]
)
def test_a_plan_of_another_type_is_refused(tmp_path, plan):
    file = stored(tmp_path / "tuned.json", PROBLEM)
    document = json.loads(file.read_text())
    document["plans"][0]["plan"] = plan
    file.write_text(json.dumps(document))
    with use_tuned(file), pytest.raises(TunedError, match="Tune again"):
        best_plan(PROBLEM)


@pytest.mark.parametrize("value", [0, -1, 10**9])
@pytest.mark.parametrize("name", ["rows", "slots"])
def test_a_plan_with_numbers_that_cannot_be_is_refused(tmp_path, name, value):
    file = stored(tmp_path / "tuned.json", PROBLEM)
    edited(file, 0, **{name: [value] * 3 if name == "slots" else value})
    with use_tuned(file), pytest.raises(TrnconvError, match="une"):
        best_plan(PROBLEM)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(TunedError, match="Name another file"):
        read(tmp_path / "none.json")


def edited(path, place, **values):
    document = json.loads(path.read_text())
    document["plans"][place]["plan"].update(values)
    path.write_text(json.dumps(document))


def place_of(path, problem):
    entries = json.loads(path.read_text())["plans"]
    keys = [json.dumps(one["problem"], sort_keys=True) for one in entries]
    return keys.index(key_of(problem))


@pytest.mark.parametrize(
    ("problem", "values", "words"),
    [
        (PROBLEM, {"rows": 10**6}, "a block has 1000000 rows"),
        (PROBLEM, {"slots": [10**6, 0, 0]}, "bytes a partition"),
        (PROBLEM, {"machine_name": "trn3"}, "of another problem"),
        (PROBLEM, {"dtype": "float32"}, "of another problem"),
        (FAST, {"transform": "F(4,3)"}, "bf16 allows"),
        (FAST, {"units": None}, "fits no record"),
    ],
    ids=["rows", "memory", "machine", "dtype", "accuracy", "record"],
)
def test_a_plan_that_cannot_be_is_refused(file, problem, values, words):
    edited(file, place_of(file, problem), **values)
    expected = TunedError if words == "fits no record" else PlanError
    with use_tuned(file), pytest.raises(expected) as refusal:
        best_plan(problem)
    if expected is PlanError:
        assert words in str(refusal.value)
    assert "une" in str(refusal.value)


def test_the_environment_names_a_file(file, monkeypatch):
    monkeypatch.setenv(ENVIRONMENT, str(file))
    assert best_plan(PROBLEM).plan == other_plan(PROBLEM)
    assert active("trn3") is None


def test_a_file_of_the_environment_that_is_too_old_is_left_alone_and_said(file, monkeypatch):
    changed(file, library="0.0.0")
    monkeypatch.setenv(ENVIRONMENT, str(file))
    with pytest.warns(TunedWarning, match=ENVIRONMENT):
        assert active("trn2") is None


def test_the_winner_is_the_fastest_schedule():
    [tuning] = tune(PROBLEM, 3)
    times = [time_plan(one.candidate.plan).makespan_ns for one in tuning.timed]
    assert len(times) == 3
    assert tuning.winner.ns == min(times)
    assert tuning.planned.candidate == searched_plan(PROBLEM)
    assert tuning.tuned.plan == tuning.winner.candidate.plan
    assert tuning.tuned.planned_ns == times[0]


def test_candidates_of_a_fast_problem_are_direct_and_fast():
    kinds = {type(one.plan).__name__ for one in best_candidates(FAST, 50)}
    assert kinds == {"DirectPlan", "WinogradPlan"}


def test_a_stamp_names_what_times_follow_from():
    assert set(stamp("trn2")) == {"machine", "constants", "library"}
