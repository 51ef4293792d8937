"""Tuned plans: stored as text, used by the planner, refused when they do not fit."""

import json
from dataclasses import replace

import pytest

from nkisim.machine import TRN2, TRN3
from trnconv.ask.question import Question
from trnconv.cases import find
from trnconv.errors import PlanError, TrnconvError
from trnconv.geometry import conv_shape
from trnconv.planner.best import best_plan, searched_plan
from trnconv.planner.table import FORMS
from trnconv.planner.tuned_file import TunedError, TunedPlan, key_of, read, stamp, written
from trnconv.planner.tuned_plans import ENVIRONMENT, TunedWarning, active, tuned_plan, use_tuned
from trnconv.runtime.filter_gradient import gradient_question
from trnconv.runtime.launch import time_plan
from trnconv.runtime.tuning import best_candidates, tune

QUESTION = Question(find("wan_from_latent").shape, TRN2)
FAST = Question(find("hunyuan_512").shape, TRN2)


def other_plan(question):
    """A legal plan that a search does not take."""
    return best_candidates(question, 2)[1].plan


def stored(path, *questions, plan=other_plan):
    winners = [TunedPlan(key_of(one), plan(one), 1.0, 2.0, 3) for one in questions]
    path.write_text(written(questions[0].machine.name, winners))
    return path


SIGNAL = Question(conv_shape((8, 512, 2048), (512, 1, 3), padding=1, groups=512), TRN2, "float32")
FLAT = gradient_question(conv_shape((2, 48, 9, 11), (40, 48, 1, 1)), TRN2, "bfloat16")
DOUBLED = Question(conv_shape((1, 256, 48, 64), (256, 256, 3, 3), padding=1, upsample=2), TRN2)
EVERY = {
    "direct": QUESTION,
    "minimal": FAST,
    "difference": DOUBLED,
    "depthwise": SIGNAL,
    "filter_gradient": FLAT,
}


@pytest.fixture
def file(tmp_path):
    return stored(tmp_path / "tuned.json", *EVERY.values())


def test_there_is_a_question_for_every_form():
    taken = {name: searched_plan(question).plan.form for name, question in EVERY.items()}
    assert taken == {form.name: form.name for form in FORMS}


@pytest.mark.parametrize("question", EVERY.values(), ids=list(EVERY))
def test_the_planner_takes_a_tuned_plan(file, question):
    before = best_plan(question)
    with use_tuned(file):
        taken = best_plan(question)
        assert tuned_plan(question) == taken
    assert taken.plan == other_plan(question) != before.plan
    assert best_plan(question) == before


def test_a_tuned_plan_has_the_cost_that_the_planner_gives_it(file):
    expected = best_candidates(QUESTION, 2)[1].cost
    with use_tuned(file):
        assert best_plan(QUESTION).cost == expected


@pytest.mark.parametrize(
    "other",
    [
        replace(QUESTION, machine=TRN3),
        replace(QUESTION, dtype="float32"),
        replace(QUESTION, reproducible=True),
        replace(QUESTION, exact=True),
        replace(QUESTION, policy=replace(QUESTION.policy, accuracy="direct")),
        replace(QUESTION, shape=replace(QUESTION.shape, c_out=200)),
        replace(QUESTION, budget=10),
    ],
    ids=["machine", "dtype", "reproducible", "exact", "policy", "shape", "budget"],
)
def test_a_tuned_plan_answers_its_own_question_only(file, other):
    with use_tuned(file):
        assert tuned_plan(QUESTION) is not None
        assert tuned_plan(other) is None


def test_text_is_the_same_whatever_the_order(tmp_path):
    one = stored(tmp_path / "one.json", QUESTION, FAST).read_text()
    two = stored(tmp_path / "two.json", FAST, QUESTION).read_text()
    assert one == two
    assert one.count('"question"') == 2
    assert max(one.count(line) for line in ('"stamp"', '"plans"')) == 1


def test_a_file_is_added_to(tmp_path):
    first = read(stored(tmp_path / "one.json", QUESTION))
    winner = TunedPlan(key_of(FAST), other_plan(FAST), 1.0, 2.0, 3)
    (tmp_path / "both.json").write_text(written("trn2", [winner], first))
    both = read(tmp_path / "both.json")
    assert set(both.entries) == {key_of(QUESTION), key_of(FAST)}


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


@pytest.mark.parametrize("plan", [None, 3, "direct", [], {}, {"form": []}, {"form": "direct"}])
def test_a_plan_of_another_type_is_refused(tmp_path, plan):
    file = stored(tmp_path / "tuned.json", QUESTION)
    document = json.loads(file.read_text())
    document["plans"][0]["plan"] = plan
    file.write_text(json.dumps(document))
    with use_tuned(file), pytest.raises(TunedError, match="Tune again"):
        best_plan(QUESTION)


@pytest.mark.parametrize("value", [0, -1, 10**9])
@pytest.mark.parametrize("name", ["rows", "slots"])
def test_a_plan_with_numbers_that_cannot_be_is_refused(tmp_path, name, value):
    file = stored(tmp_path / "tuned.json", QUESTION)
    edited(file, 0, **{name: [value] * 3 if name == "slots" else value})
    with use_tuned(file), pytest.raises(TrnconvError, match="une"):
        best_plan(QUESTION)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(TunedError, match="Name another file"):
        read(tmp_path / "none.json")


def edited(path, place, **values):
    document = json.loads(path.read_text())
    document["plans"][place]["plan"].update(values)
    path.write_text(json.dumps(document))


def place_of(path, question):
    entries = json.loads(path.read_text())["plans"]
    keys = [json.dumps(one["question"], sort_keys=True) for one in entries]
    return keys.index(key_of(question))


@pytest.mark.parametrize(
    ("question", "values", "words"),
    [
        (QUESTION, {"rows": 10**6}, "a block has 1000000 rows"),
        (QUESTION, {"slots": [10**6, 0, 0]}, "bytes a partition"),
        (QUESTION, {"machine": "trn3"}, "of another problem"),
        (QUESTION, {"dtype": "float32"}, "of another problem"),
        (FAST, {"transform": "F(4,3)"}, "bf16 allows"),
        (FAST, {"units": None}, "fits no record"),
    ],
    ids=["rows", "memory", "machine", "dtype", "accuracy", "record"],
)
def test_a_plan_that_cannot_be_is_refused(file, question, values, words):
    edited(file, place_of(file, question), **values)
    expected = TunedError if words == "fits no record" else PlanError
    with use_tuned(file), pytest.raises(expected) as refusal:
        best_plan(question)
    if expected is PlanError:
        assert words in str(refusal.value)
    assert "une" in str(refusal.value)


def test_the_environment_names_a_file(file, monkeypatch):
    monkeypatch.setenv(ENVIRONMENT, str(file))
    assert best_plan(QUESTION).plan == other_plan(QUESTION)
    assert active("trn3") is None


def test_a_file_of_the_environment_that_is_too_old_is_left_alone_and_said(file, monkeypatch):
    changed(file, library="0.0.0")
    monkeypatch.setenv(ENVIRONMENT, str(file))
    with pytest.warns(TunedWarning, match=ENVIRONMENT):
        assert active("trn2") is None


def test_the_winner_is_the_fastest_schedule():
    [tuning] = tune(QUESTION, 3)
    times = [time_plan(one.candidate.plan).makespan_ns for one in tuning.timed]
    assert len(times) == 3
    assert tuning.winner.ns == min(times)
    assert tuning.planned.candidate == searched_plan(QUESTION)
    assert tuning.tuned.plan == tuning.winner.candidate.plan
    assert tuning.tuned.planned_ns == times[0]


def test_candidates_of_a_fast_question_are_direct_and_fast():
    kinds = {type(one.plan).__name__ for one in best_candidates(FAST, 50)}
    assert kinds == {"DirectPlan", "MinimalPlan"}


def test_a_stamp_names_what_times_follow_from():
    assert set(stamp("trn2")) == {"machine", "constants", "library"}
