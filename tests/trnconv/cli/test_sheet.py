"""Tables at any width: columns go, numbers stay whole."""

import csv
import io

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from trnconv.cli.sheet import Field, Sheet, sheet

COLUMNS = (
    Field("module", words=True, least=8),
    Field("calls"),
    Field("s", "{:.3f}".format),
    Field("GB", "{:.2f}".format, rank=1),
    Field("plan", words=True, rank=2),
)
ROWS = (
    ("decoder.up_blocks.3.resnets.2.conv2", 1280, 12.3456789, 7.5, "F(4,3), blocks of 2x48x128"),
    ("decoder.conv_in", 21, 0.0123, 0.25, "direct"),
)


def printed(made, width, **how):
    out = io.StringIO()
    made.show(Console(file=out, width=width, force_terminal=True, no_color=True), **how)
    plain = out.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", "")
    return [line.rstrip() for line in plain.splitlines()]


def test_a_wide_terminal_has_every_column():
    lines = printed(sheet(COLUMNS, ROWS), 100)
    assert lines[0].split() == ["module", "calls", "s", "GB", "plan"]
    assert lines[1].split()[:4] == ["decoder.up_blocks.3.resnets.2.conv2", "1280", "12.346", "7.50"]
    assert len(lines) == 3


@pytest.mark.parametrize(("width", "gone"), [(70, "plan"), (40, "GB, plan")])
def test_a_narrow_one_has_fewer_and_says_so(width, gone):
    lines = printed(sheet(COLUMNS, ROWS), width)
    assert lines[-1] == f"No room for: {gone}. --wide shows all."
    assert all(number in lines[1] for number in ("1280", "12.346"))
    assert all(len(line) <= width for line in lines[:3])


def test_wide_and_what_is_no_terminal_have_all():
    assert printed(sheet(COLUMNS, ROWS), 40, wide=True) == printed(sheet(COLUMNS, ROWS), 200)
    out = io.StringIO()
    sheet(COLUMNS, ROWS).show(Console(file=out, width=40))
    assert [line.rstrip() for line in out.getvalue().splitlines()] == printed(
        sheet(COLUMNS, ROWS), 200
    )


@settings(suppress_health_check=[HealthCheck.too_slow])  # on a busy computer
@given(
    st.integers(20, 200),
    st.lists(st.tuples(st.integers(0, 10**9), st.floats(0, 1e9)), min_size=1, max_size=5),
)
def test_numbers_are_never_cut(width, numbers):
    rows = [("some.module", calls, seconds, 1.0, "words") for calls, seconds in numbers]
    text = "\n".join(printed(sheet(COLUMNS, rows), width)).split()
    for calls, seconds in numbers:
        assert str(calls) in text
        assert f"{seconds:.3f}" in text


def test_csv_has_numbers_in_full(capsys):
    sheet(COLUMNS, ROWS).print_csv()
    names, first, second = csv.reader(io.StringIO(capsys.readouterr().out))
    assert names == [column.name for column in COLUMNS]
    assert [float(first[2]), first[4]] == [12.3456789, "F(4,3), blocks of 2x48x128"]
    assert second[0] == "decoder.conv_in"


def test_a_sheet_without_rows_has_its_names():
    assert printed(Sheet(COLUMNS, ()), 80) == ["module  calls  s  GB  plan"]
