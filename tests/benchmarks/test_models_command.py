"""`python -m benchmarks models`: rows from stored traces, and what is left to torch."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from math import isnan
from pathlib import Path

import pytest

from benchmarks import models
from benchmarks.__main__ import main
from trnconv.model_plan import PlanOptions, model_plan
from trnconv.traces import LeftToTorch

ROOT = Path(__file__).parents[2]
ASKED = models.Asked(simulate=False, baseline=True, full=False, cores=2)
FULL = replace(ASKED, full=True)
ONE_CORE = replace(ASKED, cores=1)
FULL_ONE_CORE = replace(FULL, cores=1)


@pytest.fixture(scope="module")
def row():
    found, computed = models.row_of(("wan2.1", "decode"), asked=ASKED, known={})
    assert computed == {}
    return found


@pytest.mark.slow
def test_a_row_is_what_the_plan_says(row):
    plan = model_plan("wan2.1", "", "decode", PlanOptions(cores=2))
    assert row.ours_s == plan.seconds
    assert row.calls == plan.calls
    assert row.ours_s < row.baseline_s
    assert isnan(row.as_is_s)
    headings = models.table([row], 2).splitlines()[1]
    assert "as it is" not in headings
    assert "baseline" in headings
    assert (row.patched, row.left_to_torch) == (plan.trace.patched, ())


@pytest.mark.slow
def test_a_full_row_has_other_accuracies():
    row = models.planned(("taesd", "decode"), FULL)
    assert 0 < row.fast_s <= row.ours_s <= row.direct_s


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(ASKED, id="two"),
        pytest.param(ONE_CORE, id="one"),
        pytest.param(FULL_ONE_CORE, id="full", marks=pytest.mark.slow),  # searches
    ],
)
def test_trn3_has_a_column_where_its_plans_come_with_the_package(asked):
    row = models.planned(("taesd", "decode"), asked)
    headings = models.table([row], asked.cores).splitlines()
    assert any("trn3" in line for line in headings) == (asked is not ONE_CORE)
    if asked is ONE_CORE:
        assert isnan(row.trn3_s)
        return
    options = PlanOptions("trn3", cores=asked.cores)
    assert row.trn3_s == model_plan("taesd", "", "decode", options).seconds != row.ours_s


@pytest.mark.slow
def test_convolutions_are_counted_once_a_model(row):
    assert models.planned(("wan2.1", "encode"), ASKED).patched == 0
    assert (
        models.last_line([row]) == f"1 models, {row.patched} convolutions patched, 0 left to torch"
    )


@pytest.mark.slow
def test_a_kept_layer_has_its_reason(monkeypatch):
    seen = models.trace(models.find("taesd"), models.find("taesd").production, "decode")
    refused = LeftToTorch("decoder.layers.3", "weights in fp8")
    some = replace(seen, left_to_torch=(refused,))
    monkeypatch.setattr(models, "model_trace", lambda *_: some)
    row = models.planned(("taesd", "decode"), ASKED)
    assert models.lines_left_to_torch([row]) == [
        "left to torch: taesd decoder.layers.3: weights in fp8"
    ]
    assert models.last_line([row]).endswith("1 left to torch")


@pytest.mark.slow
def test_torch_is_not_needed(tmp_path):
    file = tmp_path / "rows.json"
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from benchmarks.__main__ import main\n"
        "if __name__ == '__main__':\n"
        f"    main(['models', '--model', 'taesd', '--workers', '1', '--json', {str(file)!r}])\n"
    )
    script = tmp_path / "run.py"
    script.write_text(program)
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("0 left to torch\n")
    assert [row["phase"] for row in json.loads(file.read_text())["rows"]] == ["encode", "decode"]


def test_a_phase_that_no_model_has_is_refused(capsys, monkeypatch):
    without = replace(models.find("taesd"), phases=("decode",))
    monkeypatch.setattr(models, "find", lambda _: without)
    assert main(["models", "--model", "taesd", "--phase", "encode"]) == 2
    assert "no such phase" in capsys.readouterr().err
