"""`python -m benchmarks family`: bars are counted, and what they count is right."""

import json
import re

import pytest

from benchmarks import family
from benchmarks.__main__ import main
from direct_plans import direct_plan
from nkisim.machine import Reading
from trnconv.geometry import TransposedShape, conv_shape
from trnconv.runtime import trace_plan

pytestmark = pytest.mark.slow  # what benchmarks print: they are run by hand


def printed(capsys, *arguments):
    assert main(["family", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("parts", "last"),
    [("videos", "bars met 1/1"), ("transposed,grouped", "bars met 5/5")],
)
def test_bars_are_met(capsys, parts, last):
    lines = printed(capsys, "--parts", parts)
    assert lines[-1] == last
    assert "modelled" in lines[0]
    assert "default reading" in lines[0]


def test_signals_stand_beside_what_was_published(monkeypatch):
    """Without the vendor's 131,072 instructions, which take seconds."""
    monkeypatch.setattr(family, "CONV1D", [row for row in family.CONV1D if row.number == "31"])
    findings = list(family.signals(Reading.default))
    barred = [one for one in findings if one.limit is not None]
    assert [(one.machine, one.limit, one.met) for one in barred] == [("trn1", 300.0, True)]
    assert findings[-1].remark == "published 461 us"
    assert findings[-1].figure > barred[0].figure


def test_json_says_the_same(capsys, tmp_path):
    file = tmp_path / "family.json"
    lines = printed(capsys, "--parts", "grouped", "--reading", "pessimistic", "--json", str(file))
    report = json.loads(file.read_text())
    assert report["summary"] == lines[-1]
    assert (report["kind"], report["reading"]) == ("modelled", "pessimistic")
    assert [one["met"] for one in report["findings"]] == [True, True]


def test_an_unknown_part_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["family", "--parts", "nothing"])
    assert "there are signals, videos" in capsys.readouterr().err


def finding(figure, limit, *, at_least=False):
    return family.Finding(
        name="a", machine="trn2", figure=figure, unit="us", limit=limit, at_least=at_least
    )


def test_bars_count_in_both_directions():
    findings = [
        finding(1.0, 1.0),
        finding(1.1, 1.0),
        finding(1.1, 1.0, at_least=True),
        finding(0.9, 1.0, at_least=True),
        finding(5.0, None),
    ]
    assert family.last_line(findings) == "bars met 2/4"
    met = [re.split(r"  +", line)[5] for line in family.table(findings).splitlines()[1:]]
    assert met == ["met", "missed", "met", "missed", "-"]


def test_columns_of_phases_by_counting():
    """Every pair of an output and a tap that falls on an input element, wherever that is."""
    shape = TransposedShape(
        batch=2,
        c_in=200,
        c_out=100,
        size=(2, 3, 4),
        out=(4, 7, 8),
        kernel=(2, 3, 4),
        stride=(2, 2, 3),
        pad_before=(0, 1, 2),
    )
    pairs = 1
    for axis in range(3):
        pairs *= sum(
            (out + shape.pad_before[axis] - tap) % shape.stride[axis] == 0
            for out in range(shape.out[axis])
            for tap in range(shape.kernel[axis])
        )
    assert family.phase_columns(shape, 128) == 2 * 2 * pairs


def test_matmul_columns_of_a_pointwise_convolution():
    shape = conv_shape((1, 128, 16, 32), (128, 128, 1, 1))
    assert family.matmul_columns(trace_plan(direct_plan(shape)).trace) == 16 * 32
