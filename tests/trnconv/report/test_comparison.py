"""Two documents side by side: sums, ratios, what changed, and the page."""

import json
from xml.etree import ElementTree as ET

import pytest

from trnconv.report.comparison import as_document, compared, comparison_page, written

NAMES = ("old & <gold>", "new")


def document(whole, layers, **others):
    given = {
        "model": {"name": "wan2.1"},
        "phase": "decode",
        "size": {"height": 720, "width": 1280, "frames": 81},
        "machine": "trn2",
        "constants_version": 3,
        "cores": 2,
        "accuracy": "bf16",
        "whole_seconds": whole,
        "seconds": 0.75 * whole,
        "operation_seconds": 0.25 * whole,
        "calls": 7,
        "multiply_adds": 5_000_000,
        "instructions": 1234,
        "regions": 0,
        "compile_s": 30.0,
        "convolution_bytes": 10**9,
        "copied_bytes": 0,
        "peak_bytes": 2 * 10**9,
        "tuned": 0,
        "operations": [{"kind": "silu", "ns": 0.25e9 * whole}],
        "layers": [
            {"modules": [name], "convolution": "4>4 3x3", "input": "1x8x8", "total_ns": 1e9 * s}
            for name, s in layers.items()
        ],
    }
    return {**given, **others}


@pytest.fixture
def made():
    first = document(4.0, {"a": 1.0, "b": 0.5, "c": 0.25, "gone": 0.1})
    second = document(2.0, {"a": 0.5, "b": 0.75, "c": 0.25}, accuracy="fast")
    return compared(NAMES, first, second)


def test_rows_are_the_sums_of_both_sides(made):
    rows = {row.what: row for row in made.rows}
    assert (rows["whole pass"].first, rows["whole pass"].second) == (4.0, 2.0)
    assert rows["whole pass"].ratio == 0.5
    assert rows["copies"].ratio is None
    assert rows["other operations: silu"].ratio == 0.5


def test_layers_that_changed_come_by_how_much(made):
    assert [row.what.split(",")[0] for row in made.layers] == ["a", "b"]
    assert [row.ratio for row in made.layers] == [0.5, 1.5]
    assert made.only == (("gone, 4>4 3x3, 1x8x8",), ())


def test_the_page_is_well_formed_alone_and_complete(made):
    text = comparison_page(made)
    tree = ET.fromstring(text)  # noqa: S314 (our own)
    shown = " ".join("".join(tree.itertext()).replace("\u00a0", " ").split())
    assert "http" not in text
    assert "old & <gold> and new" in shown
    assert "nothing was measured" in shown
    assert (
        "new: wan2.1 decode of 720x1280x81, trn2, constants 3, two cores (LNC2), accuracy fast"
        in shown
    )
    assert "Only in old & <gold>" in shown
    assert all(value in shown for value in ("4.00 s", "2.00 s", "0.500"))


def test_the_document_is_json_with_ratios(made):
    found = json.loads(json.dumps(as_document(made)))
    assert found["rows"][0]["ratio"] == 0.5
    assert found["names"] == list(NAMES)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(36.0, "", "36"), (0.0, "s", "0 s"), (5e6, "", "5.00 M"), (2e9, "B", "2.00 GB")],
)
def test_numbers_have_their_units(value, unit, text):
    assert written(value, unit).replace("\u00a0", " ") == text
