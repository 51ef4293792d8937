"""`trnconv compare`: sides by words or by file, refusals, table, page and JSON."""

import json

import pytest

from cli_runs import answer
from trnconv.cli.compare import PlanSide
from trnconv.errors import TrnconvError

PLAIN, FAST = "sdxl,accuracy=direct", "sdxl,accuracy=direct,cores=1"


def test_a_side_is_a_model_and_its_choices(tmp_path):
    side = PlanSide.parse("wan2.1,accuracy=fast,machine=trn3,phase=encode")
    assert (side.model, side.accuracy, side.machine, side.phase) == (
        "wan2.1",
        "fast",
        "trn3",
        "encode",
    )
    file = tmp_path / "plan.json"
    file.write_text("{}")
    assert (PlanSide.parse(str(file)).model, PlanSide.parse(str(file)).text) == ("", str(file))


@pytest.mark.parametrize("choice", ["colour=red", "accuracy", "accuracy="])
def test_what_is_no_choice_is_refused(choice):
    with pytest.raises(TrnconvError, match="is no choice"):
        PlanSide.parse(f"wan2.1,{choice}")


@pytest.mark.parametrize(
    ("text", "words"), [("{", "cannot be read as JSON"), ("[]", "has no"), ("{}", "has no model")]
)
def test_a_file_that_is_no_plan_is_refused(run, tmp_path, text, words):
    file = tmp_path / "plan.json"
    file.write_text(text)
    ran = run("compare", str(file), "wan2.1")
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err


@pytest.mark.slow
def test_a_stored_plan_compares_with_one_of_now(run, tmp_path):
    file, page = tmp_path / "before.json", tmp_path / "page.html"
    file.write_text(run("plan", "--model", "sdxl", "--accuracy", "direct", "--json").out)
    found = answer(run("compare", str(file), FAST, "-o", str(page), "--json"))
    assert page.read_text().startswith("<!DOCTYPE html>")
    before = json.loads(file.read_text())
    whole = found["rows"][0]
    assert whole["first"] == before["whole_seconds"]
    assert (
        whole["second"]
        == answer(run("plan", "--model", "sdxl", "--accuracy", "direct", "--cores", "1", "--json"))[
            "whole_seconds"
        ]
    )
    assert 1.8 < whole["ratio"] < 2.1
    table = run("compare", str(file), FAST)
    assert table.out.startswith("A: sdxl decode of 1024x1024x1, trn2")
    same = answer(run("compare", str(file), PLAIN, "--json"))
    assert (same["rows"][0]["ratio"], same["layers"]) == (1, [])
