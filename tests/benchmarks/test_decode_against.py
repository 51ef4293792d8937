"""`python -m benchmarks decode --against`: ratios to stored rows, from runs made up by hand."""

import json
from dataclasses import dataclass

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks.decode_against import (
    BARS,
    against_table,
    judged_against,
    ratio,
    stored_seconds,
)
from nkisim.machine import CONSTANTS_VERSION
from trnconv.errors import TrnconvError


@dataclass(frozen=True)
class Whole:
    model: str
    fused_s: float
    size: str = "720p81"
    phase: str = "decode"
    cores: int = 2


def row(model, convolutions_s, rest_s):
    named = {"model": model, "size": "720p81", "phase": "decode", "cores": 2}
    return {**named, "convolutions_s": convolutions_s, "rest_s": rest_s}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "stored.json"
    rows = [row("wan2.1", 3.0, 1.0), row("hunyuanvideo", 9.0, 1.0)]
    path.write_text(json.dumps({"constants": CONSTANTS_VERSION, "runs": rows}))
    return path


def test_a_ratio_is_of_everything(file):
    stored = stored_seconds(file)
    assert ratio(Whole("wan2.1", 3.0), stored) == 0.75
    assert ratio(Whole("wan2.1", 3.0, size="480p81"), stored) is None
    assert ratio(Whole("wan2.1", 3.0, cores=1), stored) is None
    assert ratio(Whole("mochi", 3.0), stored) is None


def test_bars_of_fast_are_those_of_the_models_that_were_run(file):
    runs = [Whole("wan2.1", 3.52), Whole("hunyuanvideo", 9.01), Whole("mochi", 1.0)]
    judged = judged_against(runs, stored_seconds(file), "fast")
    assert [is_met for _, is_met in judged] == [True, False]
    assert "wan2.1 decode: 0.880, at most 0.88" in judged[0][0]
    (fastest,) = judged_against(runs, stored_seconds(file), "fastest")
    assert fastest == ("hunyuanvideo decode: 0.901, at most 0.76", False)
    assert len(BARS) == 7


def test_of_another_accuracy_nothing_may_be_slower(file):
    runs = [Whole("wan2.1", 4.0), Whole("hunyuanvideo", 10.001)]
    judged = judged_against(runs, stored_seconds(file), "bf16")
    assert [is_met for _, is_met in judged] == [True, False]


def test_the_table_has_both_times(file):
    text = against_table([Whole("wan2.1", 3.0), Whole("mochi", 1.0)], stored_seconds(file))
    assert "0.750" in text
    assert "mochi" not in text


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"constants": "3", "runs": [{}]}'])
def test_a_file_that_is_something_else_is_refused(tmp_path, text):
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(TrnconvError, match="Name another file"):
        stored_seconds(tmp_path / "other.json")


def test_a_file_of_other_constants_is_refused(file, capsys):
    document = {**json.loads(file.read_text()), "constants": "none"}
    file.write_text(json.dumps(document))
    assert benchmarks.main(["decode", "--against", str(file)]) == 2
    assert "Make it again" in capsys.readouterr().err


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(TrnconvError, match="No such file"):
        stored_seconds(tmp_path / "none.json")
