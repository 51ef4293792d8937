"""Plans of registered models on disk: read when asked for again, kept only where that is right."""

import json
import shutil
from dataclasses import replace

import pytest

from nkisim.machine import TRN2
from trnconv.cli.plan_answers import TUNED_VARIABLE, ModelRequest, kept_or_made
from trnconv.model_plan import plans
from trnconv.planner import tuned_plans

TINY = ("--model", "taesd", "--size", "512x512x1", "--json")
REQUEST = ModelRequest("taesd", "", "decode", "trn2", "bf16", None, None, None)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A cache of its own."""
    monkeypatch.setenv("TRNCONV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv(TUNED_VARIABLE, raising=False)


class Maker:
    """Makes a plan that says how many there have been."""

    def __init__(self, *, of_package=True):
        self.made, self.of_package = 0, of_package

    def __call__(self):
        self.made += 1
        return {"number": self.made}, self.of_package


def asked_twice(request, maker, **how):
    return [kept_or_made(request, maker, unused=how.get("unused", False)) for _ in range(2)]


def test_a_plan_is_made_once():
    assert asked_twice(REQUEST, Maker()) == [{"number": 1}, {"number": 1}]


@pytest.mark.parametrize(
    "other",
    [
        {"model": "taef1"},
        {"size": "512x512x1"},
        {"phase": "encode"},
        {"machine": "trn3"},
        {"accuracy": "fast"},
        {"cores": 1},
        {"batch": 2},
        {"dtype": "float32"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_another_request_gets_a_plan_of_its_own(other):
    maker = Maker()
    kept_or_made(REQUEST, maker, unused=False)
    assert kept_or_made(replace(REQUEST, **other), maker, unused=False) == {"number": 2}


@pytest.mark.parametrize("machine", ["measured.json", "measured.json+fence"])
def test_plans_with_measured_constants_are_not_kept(machine):
    assert asked_twice(replace(REQUEST, machine=machine), Maker())[1] == {"number": 2}


def test_plans_with_tuned_plans_are_not_kept(monkeypatch):
    assert TUNED_VARIABLE == tuned_plans.ENVIRONMENT
    monkeypatch.setenv(TUNED_VARIABLE, "tuned.json")
    assert asked_twice(REQUEST, Maker())[1] == {"number": 2}


def test_plans_of_what_a_library_does_are_not_kept():
    assert asked_twice(REQUEST, Maker(of_package=False))[1] == {"number": 2}


def test_no_cache_neither_reads_nor_writes(tmp_path):
    assert asked_twice(REQUEST, Maker(), unused=True)[1] == {"number": 2}
    assert not (tmp_path / "cache").exists()


def test_the_command_reads_its_plan_the_second_time(run, tmp_path, monkeypatch):
    first = run("plan", *TINY)
    assert json.loads(first.out)["machine"] == TRN2.name
    monkeypatch.setattr(plans, "plan_trace", None)
    monkeypatch.setattr("trnconv.model_plan.plan_trace", None)
    assert run("plan", *TINY) == first
    shutil.rmtree(tmp_path / "cache" / "plans")
    with pytest.raises(TypeError):
        run("plan", *TINY)


def test_a_plan_with_a_tuned_file_is_worked_out(run, tmp_path, monkeypatch):
    """A file that cannot be read is refused, though the same plan without it lies on disk."""
    run("plan", *TINY)
    (tmp_path / "tuned.json").write_text("{")
    assert run("plan", *TINY, "--tuned", str(tmp_path / "tuned.json")).code == 2
