"""Every command that takes a layer, on every named layer and on random ones: answers or words.

An answer is exit code 0 and a document; a refusal is exit code 2 and a sentence. Anything else, an
exception that leaves `main` above all, is a defect of a command.
"""

import json

import pytest

from random_layers import random_layer
from trnconv.cases import BENCHMARK

pytestmark = [pytest.mark.cli, pytest.mark.sweep]

NAMED = [case.name for case in BENCHMARK]
RANDOM = range(30)
COMMANDS = ("plan", "explain", "time", "trace", "report", "verify", "tune")


def arguments_of(command, tmp_path):
    """What a command needs besides a layer, and the files that it must have written."""
    page, plans = tmp_path / "page.html", tmp_path / "plans.json"
    picture, perfetto = tmp_path / "lanes.svg", tmp_path / "trace.json"
    return {
        "trace": (("--svg", str(picture), "--perfetto", str(perfetto)), (picture, perfetto)),
        "report": (("-o", str(page)), (page,)),
        "tune": (("-o", str(plans), "--candidates", "2"), (plans,)),
    }.get(command, ((), ()))


def sweep(run, command, layer, tmp_path):
    more, files = arguments_of(command, tmp_path)
    ran = run(command, *layer, *more, "--json")
    if ran.code == 0:
        json.loads(ran.out)
        assert all(file.stat().st_size for file in files)
        assert run(command, *layer, *more).code == 0
    return ran


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", NAMED)
def test_named_layers_are_answered(run, tmp_path, name, command):
    ran = sweep(run, command, [name], tmp_path)
    assert (ran.code, ran.err) == (0, "")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("seed", RANDOM)
def test_random_layers_are_answered_or_refused_in_words(run, tmp_path, seed, command):
    layer, machine = random_layer(seed)
    ran = sweep(run, command, [*layer, "--machine", machine], tmp_path)
    if ran.code:
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith("trnconv: ")


def test_most_random_layers_are_answered(run):
    answered = 0
    for seed in RANDOM:
        layer, machine = random_layer(seed)
        answered += run("plan", *layer, "--machine", machine).code == 0
    assert answered >= 2 * len(RANDOM) / 3


@pytest.mark.parametrize("name", NAMED)
def test_bench_has_named_layers(run, name):
    ran = run("bench", name, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out)["rows"][0]["name"] == name
