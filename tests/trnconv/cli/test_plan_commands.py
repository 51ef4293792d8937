"""`models`, `plan`, `explain`, `tune`, `doctor`: answers, refusals in words, exit codes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli_runs import answer
from nkisim.machine import TRN2
from repetition import few, slow_beyond
from trnconv.cases import find
from trnconv.cli import completion, environment
from trnconv.errors import UnsupportedError
from trnconv.model_plan import PlanOptions, Prices, model_plan
from trnconv.models import models
from trnconv.problem.conv_problem import ConvProblem
from trnconv.runtime.launch import time_plan
from trnconv.runtime.pricing import price
from yardstick import limit_s

SMALL = ("--channels", "16:24", "--kernel", "3x3", "--size", "12x20", "--padding", "1")
SDXL = ("--model", "sdxl", "--accuracy", "direct")


def test_models_lists_the_registry(run):
    listed = answer(run("models", "--json"))["models"]
    assert [one["name"] for one in listed] == [entry.name for entry in models()]
    table = run("models").out
    assert all(entry.class_name in table for entry in models())


@pytest.mark.parametrize("accuracy", ["direct", "bf16"])
def test_plan_of_a_layer_has_the_planners_price(run, accuracy):
    from trnconv.problem.policy import Policy

    case = find("cogvideox_512")
    expected = price(ConvProblem(case.shape, TRN2, policy=Policy(accuracy)))
    found = answer(run("plan", case.name, "--accuracy", accuracy, "--json"))
    assert found["ns"] == expected.ns
    assert found["instructions"] == expected.instructions
    assert found["algorithm"].startswith("direct" if accuracy == "direct" else "F(")
    assert found["tuned"] is False


@pytest.mark.parametrize("machine", ["trn1", "trn2", "trn3"])
def test_plan_takes_every_machine(run, machine):
    found = answer(run("plan", *SMALL, "--machine", machine, "--json"))
    assert found["machine"] == machine


@pytest.mark.slow
def test_plan_of_a_model_has_the_totals_of_the_library(run):
    expected = model_plan("sdxl", "", "decode", PlanOptions(accuracy="direct"))
    found = answer(run("plan", *SDXL, "--json"))
    assert found["seconds"] == expected.seconds
    assert found["instructions"] == expected.instructions
    assert len(found["layers"]) == len(expected.layers)
    total = sum(one["calls"] * one["call"]["ns"] for one in found["layers"])
    assert total == pytest.approx(found["seconds"] * 1e9, rel=1e-12)


@pytest.mark.slow
def test_plan_of_a_model_on_two_cores(run):
    options = PlanOptions(accuracy="direct", cores=2)
    expected = model_plan("sdxl", "", "decode", options)
    found = answer(run("plan", *SDXL, "--json"))
    assert (found["cores"], found["seconds"]) == (2, expected.seconds)
    assert answer(run("plan", *SDXL, "--cores", "2", "--json")) == found
    alone = answer(run("plan", *SDXL, "--cores", "1", "--json"))
    assert alone["cores"] == 1
    # More than twice: a half may be short enough to be unrolled where the whole is a loop.
    assert 1.9 < alone["seconds"] / found["seconds"] < 2.1
    assert "default reading, two cores (LNC2)," in run("plan", *SDXL, "--top", "1").out
    assert "default reading, one core," in run("plan", *SDXL, "--cores", "1", "--top", "1").out
    with pytest.raises(UnsupportedError, match="prices of 1 cores for a plan of 2"):
        model_plan("sdxl", "", "decode", options, Prices(cores=1))


@pytest.mark.slow
def test_top_leaves_layers_out_but_not_of_the_totals(run):
    few, all_of_them = (
        answer(run("plan", *SDXL, *more, "--json")) for more in (("--top", "2"), ())
    )
    assert few["layers"] == all_of_them["layers"][:2]
    assert few["seconds"] == all_of_them["seconds"]
    assert "and 16 more" in run("plan", *SDXL, "--top", "2").out


@pytest.mark.parametrize("asked", slow_beyond(1, [SMALL, SDXL]), ids=["layer", "model"])
def test_the_second_time_prices_come_from_disk(run, tmp_path, monkeypatch, asked):
    first = run("plan", *asked, "--json")
    stored = sorted((tmp_path / "cache").rglob("*.json"))
    assert stored
    shutil.rmtree(tmp_path / "cache" / "plans", ignore_errors=True)
    monkeypatch.setattr("trnconv.model_plan.prices.price", None)
    assert run("plan", *asked, "--json").out == first.out


def test_a_spoilt_cache_is_said_and_the_answer_is_right(run, tmp_path):
    first = run("plan", *SMALL, "--json")
    [path] = (tmp_path / "cache").rglob("*.json")
    path.write_text("{")
    again = run("plan", *SMALL, "--json")
    assert again.out == first.out
    assert "1 unreadable" in again.err


def test_no_cache_leaves_no_trace(run, tmp_path):
    assert run("plan", *SMALL, "--no-cache").code == 0
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plan",), "a layer without --channels, --kernel, --size"),
        (("plan", "--model", "wan9"), "It has wan2.1"),
        (("plan", "--model", "wan2.1", "--size", "720x1280x80"), "4n+1 frames"),
        (("plan", "--model", "wan2.1", "--size", "big"), "such as 720x1280x81"),
        (("plan", "wan_96_wide", "--model", "wan2.1"), "Give a model or a layer, not both"),
        (("plan", "--model", "wan2.1", "--kernel", "3"), "--kernel"),
        (("plan", "--model", "wan2.1", "--phase", "up"), "it can encode and decode"),
        (("plan", *SMALL, "--phase", "decode"), "models have phases"),
        (("plan", *SMALL, "--machine", "trn9"), "trn1, trn2, trn3"),
        (("plan", *SMALL, "--accuracy", "good"), "one of direct, bf16, fast"),
        (("plan", *SMALL, "--tuned", "nowhere.json"), "Name another file"),
        (("plan", "wan_96_wid"), "wan_96_wide"),
        (("explain", *SMALL, "--padding", "x"), "--padding x"),
        (("plan", *SMALL, "--top", "0"), "top"),
        (("plan", *SMALL, "--padding-mode", "mirror"), "'mirror'"),
        (("plan", *SMALL, "--output-padding", "1"), "without --transposed"),
        (("plan", *SMALL, "--transposed", "--padding-mode", "reflect"), "has no mode"),
        (("plan", *SMALL, "--transposed", "--padding", "same"), "--padding same"),
        (("plan", *SMALL, "--cores", "3"), "3 cores on trn2"),
        (("explain", *SMALL, "--cores", "2", "--machine", "trn1"), "2 cores on trn1"),
        (("plan", *SDXL, "--cores", "2", "--machine", "trn1"), "2 cores on trn1"),
        (("plan", *SDXL, "--transposed"), "--transposed: these options describe a single layer"),
        (("verify", *SMALL, "--transposed"), "plain convolutions are verified"),
        (("plan", "--colour"), "colour"),
    ],
)
def test_refusals_are_words_and_exit_code_2(run, arguments, words):
    ran = run(*arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert words in ran.err
    assert "Traceback" not in ran.err


OPTIONS = {
    "groups": ("--groups", "8"),
    "transposed": ("--transposed", "--stride", "2", "--output-padding", "1"),
    "mode": ("--padding-mode", "circular"),
    "cores": ("--cores", "1"),
    "dtype": ("--dtype", "float32"),
}


@few(3)
@pytest.mark.parametrize("command", ["plan", "explain"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
def test_plan_and_explain_take_what_the_functions_take(run, command, options):
    plain, found = (answer(run(command, *SMALL, *more, "--json")) for more in ((), options))
    assert any(found[name] != plain[name] for name in ("ns", "multiply_adds"))
    if "--transposed" in options:
        assert found["layer"]["in_words"].endswith("transposed to 1x24x40.")
        assert found["multiply_adds"] == 16 * 24 * 9 * 12 * 20
    if "--cores" in options:
        assert (plain["cores"], found["cores"]) == (2, 1)
        assert ", one core, " in run(command, *SMALL, *options).out


def test_a_refusal_of_the_planner_names_the_arguments(run):
    huge = ("--channels", "1:64", "--kernel", "4x4", "--size", "2160x512", "--batch", "8")
    ran = run("plan", *huge, "--stride", "4", "--transposed", "--dtype", "float32")
    assert ran.code == 2
    assert "conv_transpose2d(input [8, 1, 2160, 512], weight [1, 64, 4, 4], stride=4" in ran.err
    assert "33.8 GiB" in ran.err
    assert "the HBM of trn2 has 24 GiB" in ran.err


def test_explain_says_what_each_accuracy_gives(run):
    found = answer(run("explain", "hunyuan_512", "--json"))
    policies = {one["accuracy"]: one for one in found["policies"]}
    assert list(policies) == ["direct", "bf16", "fast", "fastest"]
    assert policies["fast"]["ns"] <= policies["bf16"]["ns"] <= policies["direct"]["ns"]
    assert policies["direct"]["expected_error"] == 1.0 <= policies["bf16"]["expected_error"]
    assert found["ns"] == policies["bf16"]["ns"]
    assert found["words"][0].startswith("two cores (LNC2): core 0 has rows from 0")
    assert "lost" in found["words"][1]
    assert "F(4,3)" in found["words"][1]
    alone = answer(run("explain", "hunyuan_512", "--cores", "1", "--json"))
    assert "lost" in alone["words"][0]


def test_tune_stores_what_plan_then_takes(run, tmp_path):
    out = tmp_path / "tuned.json"
    tuned = answer(run("tune", *SMALL, "-o", str(out), "--candidates", "3", "--json"))
    [layer] = tuned["layers"]
    times = [one["scheduled_ns"] for one in layer["timed"]]
    assert len(times) == 3
    assert layer["tuned_ns"] == min(times)
    assert layer["planned_ns"] == times[0]
    planned = answer(run("plan", *SMALL, "--tuned", str(out), "--cores", "1", "--json"))
    assert planned["tuned"] is True
    assert planned["plan"] == layer["plan"]
    for command in ("plan", "explain"):
        assert "(tuned)" in run(command, *SMALL, "--tuned", str(out), "--cores", "1").out
    assert answer(run("plan", *SMALL, "--json"))["tuned"] is False


def test_tune_adds_to_a_file_of_its_machine_only(run, tmp_path):
    out = str(tmp_path / "tuned.json")
    for size in ("12x20", "6x20"):
        small = [size if one == "12x20" else one for one in SMALL]
        assert run("tune", *small, "-o", out, "--candidates", "1").code == 0
    assert len(json.loads((tmp_path / "tuned.json").read_text())["plans"]) == 2
    refused = run("tune", *SMALL, "-o", out, "--machine", "trn3")
    assert refused.code == 2
    assert "for trn2, these are for trn3" in refused.err


@pytest.mark.slow
def test_tune_takes_the_heaviest_layers_of_a_model(run, tmp_path):
    out = str(tmp_path / "tuned.json")
    tuned = answer(run("tune", *SDXL, "--top", "1", "--candidates", "1", "-o", out, "--json"))
    options = PlanOptions(accuracy="direct", cores=1)
    heaviest = model_plan("sdxl", "", "decode", options).heaviest(1)[0]
    assert [one["layer"] for one in tuned["layers"]] == [heaviest.modules[0]]
    scheduled = time_plan(heaviest.price.plan.plan).makespan_ns
    assert tuned["layers"][0]["tuned_ns"] == scheduled
    for cores in ("1", "2"):
        planned = answer(run("plan", *SDXL, "--tuned", out, "--cores", cores, "--json"))
        assert planned["tuned"] == 1


def without_torch(monkeypatch):
    installed = environment.find_spec
    extras = {name for packages, _ in environment.EXTRAS.values() for name in packages}
    monkeypatch.setattr(
        environment, "find_spec", lambda name: None if name in extras else installed(name)
    )


def test_doctor_works_in_a_base_install(run, monkeypatch):
    without_torch(monkeypatch)
    found = answer(run("doctor", "--json"))
    assert found["usable"] is True
    assert found["backend"]["taken"] is None
    assert [one["install"] for one in found["extras"]] == [
        f"pip install 'trnconv[{name}]'" for name in ("torch", "diffusers", "corpus", "plots")
    ]
    text = run("doctor").out
    assert "pip install 'trnconv[diffusers]'" in text
    assert "torch is not installed" in text
    assert text.endswith("Usable.\n")


def test_doctor_counts_the_cache(run, monkeypatch, tmp_path):
    without_torch(monkeypatch)
    run("plan", *SMALL)
    prices, plans = answer(run("doctor", "--json"))["caches"]
    assert (prices["name"], prices["entries"], prices["set_aside"]) == ("prices", 1, 0)
    assert prices["folder"].startswith(str(tmp_path))
    assert prices["bytes"] > 0
    assert (plans["name"], plans["entries"]) == ("plans", 0)


def test_doctor_fails_if_the_check_does(run, monkeypatch):
    without_torch(monkeypatch)
    monkeypatch.setattr(environment, "_INNER_SUM", 35.0)
    ran = run("doctor")
    assert ran.code == 1
    assert "WRONG" in ran.out
    assert "Not usable" in ran.out


@pytest.mark.torch
def test_doctor_says_which_backend_is_taken_and_why(run, monkeypatch):
    monkeypatch.delenv("TRNCONV_BACKEND", raising=False)
    assert answer(run("doctor", "--json"))["backend"] == {
        "taken": "nkisim",
        "reason": "the tensor is on cpu: simulated",
    }
    monkeypatch.setenv("TRNCONV_BACKEND", "torch")
    assert answer(run("doctor", "--json"))["backend"]["taken"] == "torch"
    monkeypatch.setenv("TRNCONV_BACKEND", "neuron")
    assert "move it to a Neuron device" in answer(run("doctor", "--json"))["backend"]["reason"]


@pytest.mark.parametrize(
    ("offers", "incomplete", "expected"),
    [
        (completion.model_names, "wan", ["wan2.1", "wan2.2-5b"]),
        (completion.case_names, "wan_to", ["wan_to_rgb"]),
        (completion.machine_names, "", ["trn1", "trn2", "trn3"]),
        (completion.phase_names, "e", ["encode"]),
        (completion.accuracy_names, "", ["direct", "bf16", "fast", "fastest"]),
    ],
)
def test_completion_offers_what_there_is(offers, incomplete, expected):
    assert [word for word, _ in offers(incomplete)] == expected


ROOT = Path(__file__).parents[3]
SETTINGS = {
    "models": "sys.argv = ['trnconv', 'models']",
    "completion": "os.environ.update(_TRNCONV_COMPLETE='complete_zsh',"
    " _TYPER_COMPLETE_ARGS='trnconv plan --model wan')",
    "plan": f"sys.argv = ['trnconv', 'plan', *{SDXL}, '--no-cache']",
    "size": "sys.argv = ['trnconv', 'plan', '--model', 'wan2.1', '--size', '480x832x49',"
    " '--no-cache']",
}


@pytest.mark.parametrize("name", slow_beyond(2, SETTINGS))
def test_torch_is_not_loaded(name):
    program = f"""
import os, sys
{SETTINGS[name]}
from trnconv.cli import app
try:
    app(prog_name="trnconv")
except SystemExit:
    print("loaded:", sorted({{"torch", "diffusers"}} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=limit_s(120),
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.stdout.endswith("loaded: []\n"), done.stderr


def cpu_seconds(program, folder):
    """Of a process of Python: how busy the computer is otherwise does not count.

    Prices and bytecode are kept in a folder, as an installed package keeps them.
    """
    kept = {"TRNCONV_CACHE_DIR": str(folder), "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    known = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = os.times()
    done = subprocess.run(
        [sys.executable, *program],
        capture_output=True,
        check=False,
        timeout=limit_s(300),
        env={**known, **kept, "PYTHONPATH": str(ROOT / "src")},
    )
    after = os.times()
    assert done.returncode == 0, done.stderr
    return (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


PROGRAM = ("-m", "trnconv")
WAN = (*PROGRAM, "plan", "--model", "wan2.1", "--size", "720x1280x81")
LIBRARIES = ("-c", "import typer, rich")


@pytest.mark.slow
def test_a_model_is_planned_in_5_seconds_and_again_in_1(tmp_path):
    assert cpu_seconds(WAN, tmp_path) < limit_s(5)
    assert min(cpu_seconds(WAN, tmp_path) for _ in range(5)) < limit_s(1)


@pytest.mark.slow
def test_help_takes_at_most_twice_as_long_as_its_libraries(tmp_path):
    cpu_seconds((*PROGRAM, "--help"), tmp_path)
    pairs = [
        [cpu_seconds(program, tmp_path) for program in ((*PROGRAM, "--help"), LIBRARIES)]
        for _ in range(7)
    ]
    ours, theirs = map(min, zip(*pairs, strict=True))
    assert ours <= 2 * theirs


@pytest.mark.slow
def test_a_size_that_is_not_stored_is_planned_in_10_seconds(tmp_path):
    """What was traced at another size is scaled; `test_torch_is_not_loaded` has its size, too."""
    asked = (*PROGRAM, "plan", "--model", "wan2.1", "--size", "480x832x49")
    assert cpu_seconds(asked, tmp_path) < limit_s(10)
