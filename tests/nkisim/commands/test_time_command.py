"""`python -m nkisim time`."""

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from nkisim.__main__ import main
from nkisim.examples import EXAMPLES
from nkisim.machine import CONSTANTS_VERSION

ROOT = Path(__file__).parents[3]


def run_time(*arguments):
    assert main(["time", *map(str, arguments)]) == 0


def test_it_prints_the_table(capsys):
    run_time("--example", "vector_add")
    printed = capsys.readouterr().out
    label = f"modelled, trn2, constants {CONSTANTS_VERSION}, default reading"
    assert printed.startswith(f"vector_add: {label}\n")
    assert "instructions  64 static (64 as the compiler counts); 64 executed" in printed


def test_it_writes_the_files(tmp_path, capsys):
    names = {kind: tmp_path / f"out.{kind}" for kind in ("json", "svg", "perfetto")}
    options = [word for kind, file in names.items() for word in (f"--{kind}", file)]
    run_time("--example", "looped_copy", "--machine", "trn1", "--reading", "pessimistic", *options)
    label = f"modelled, trn1, constants {CONSTANTS_VERSION}, pessimistic reading"
    assert label in capsys.readouterr().out
    report = json.loads(names["json"].read_text())
    assert report["label"] == label
    assert report["makespan_ns_by_reading"] == {"pessimistic": report["makespan_ns"]}
    assert label in "".join(ET.parse(names["svg"]).getroot().itertext())  # noqa: S314 (our own)
    assert json.loads(names["perfetto"].read_text())["otherData"]["label"] == label


def test_all_readings_are_compared(tmp_path, capsys):
    file = tmp_path / "report.json"
    run_time("--example", "matmul", "--reading", "all", "--json", file)
    printed = capsys.readouterr().out
    heading = f"matmul: modelled, trn2, constants {CONSTANTS_VERSION}, by reading"
    assert printed.startswith(heading)
    assert f"constants {CONSTANTS_VERSION}, default reading" in printed
    makespans = json.loads(file.read_text())["makespan_ns_by_reading"]
    assert list(makespans) == ["optimistic", "default", "pessimistic"]
    assert makespans["optimistic"] < makespans["default"] < makespans["pessimistic"]


@pytest.mark.parametrize("machine", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_timed_on_every_machine(name, machine, capsys):
    run_time("--example", name, "--machine", machine)
    assert f"{name}: modelled, {machine}, constants" in capsys.readouterr().out


def test_an_unknown_example_lists_the_known_ones(capsys):
    assert main(["time", "--example", "nothing"]) == 2
    message = capsys.readouterr().err
    assert "unknown example 'nothing'" in message
    assert all(name in message for name in EXAMPLES)


def test_the_looped_loop_is_extrapolated(tmp_path, capsys):
    file = tmp_path / "report.json"
    run_time("--example", "looped_copy", "--json", file)
    report = json.loads(file.read_text())
    assert (report["static_instructions"], report["executed_instructions"]) == (8, 8000)
    (loop,) = report["extrapolated_loops"]
    assert 900 < loop["iterations"] < 1000
    directions = report["dma"]["directions"]
    assert [lane["instructions"] for lane in directions] == [4000, 4000]
    assert "iterations of" in capsys.readouterr().out


def test_the_picture_in_the_guide_is_of_these_constants():
    text = (ROOT / "docs" / "images" / "matmul-timeline.svg").read_text()
    assert len(text) < 300_000
    assert re.search(rf"modelled, trn2, constants {CONSTANTS_VERSION}, default reading", text)
