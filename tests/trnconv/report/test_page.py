"""The page: well formed, complete, alone, readable, and with the numbers of its content."""

import json
import re
from dataclasses import fields, is_dataclass, replace
from xml.etree import ElementTree as ET

import pytest

from report_examples import example, layer
from trnconv.report.content import Report, as_json
from trnconv.report.page import page
from trnconv.report.tables import COLUMNS, shortened


@pytest.fixture(scope="module")
def text():
    return page(example())


@pytest.fixture(scope="module")
def tree(text):
    return ET.fromstring(text)  # noqa: S314 (it is our own page, and has to be XML)


def words(element):
    return " ".join("".join(element.itertext()).replace("\u00a0", " ").split())


def table_of(tree, name):
    return next(one for one in tree.iter("table") if one.get("class") == name)


def test_the_page_is_well_formed_and_says_what_it_is(text, tree):
    assert text.startswith("<!DOCTYPE html>\n<html lang=")
    assert words(tree.find("head/title")) == "A model & its <decoder>: modelled times"
    assert [one.tag for one in tree] == ["head", "body"]
    assert words(tree.find(".//h1")) == "A model & its <decoder>"


def test_the_page_needs_nothing_from_elsewhere(text, tree):
    assert "http" not in text
    assert not re.search(r"@import|url\(", text)
    for element in tree.iter():
        assert not {"src", "href"} & set(element.keys()), ET.tostring(element)
        assert element.tag not in {"link", "iframe", "img", "object"}


def test_every_layer_is_a_row_with_its_exact_numbers(tree):
    body = table_of(tree, "layers").find("tbody")
    rows = list(body)
    assert [row.get("id") for row in rows] == ["layer-1", "layer-2", "layer-3"]
    for row, one in zip(rows, example().layers, strict=True):
        cells = zip(COLUMNS, row, strict=True)
        values = {column.name: cell.get("data-value") for column, cell in cells}
        assert float(values["one call"]) == one.ns
        assert float(values["all calls"]) == one.total_ns
        assert float(values["share"]) == one.share
        assert float(values["TFLOP/s"]) == one.tflops
        assert float(values["of peak"]) == one.of_peak
        assert float(values["FLOP/B"]) == one.flop_per_byte
        assert float(values["HBM"]) == one.calls * one.hbm_bytes
        assert float(values["instr."]) == one.total_instructions
        assert (values["algorithm"], values["bound by"]) == (one.algorithm, one.bound)


def test_what_a_row_shows(tree):
    first, second, third = table_of(tree, "layers").find("tbody")
    assert words(first[0]) == "1 96 \u2192 97, 3\u00d73\u00d73decoder.block.1.conv +1"
    shown = [words(cell) for cell in first][1:]
    assert shown[:5] == ["4\u00d760\u00d7104", "5", "120 \u00b5s", "600 \u00b5s", "60.0 %"]
    assert shown[-1] == "2.00 \u00d7"
    assert words(second[-1]) == "\u2013"
    assert "stride 1\u00d72\u00d72" in words(third[0])


def test_every_heading_sorts_by_keyboard_too(text, tree):
    heads = table_of(tree, "layers").find("thead/tr")
    assert [words(head) for head in heads] == [column.name for column in COLUMNS]
    assert all(head.find("button").get("type") == "button" for head in heads)
    ordered = {words(head): head.get("aria-sort") for head in heads if head.get("aria-sort")}
    assert ordered == {"all calls": "descending"}
    totals = [one.total_ns for one in example().layers]
    assert totals == sorted(totals, reverse=True)
    # what the script reads is there: numbers in columns of numbers
    for row in table_of(tree, "layers").find("tbody"):
        for column, cell in zip(COLUMNS, row, strict=True):
            assert column.is_words == ("words" in (cell.get("class") or ""))
            if not column.is_words:
                float(cell.get("data-value"))
    assert 'querySelectorAll("th button")' in text
    assert "dataset.value" in text


def test_the_headline_is_the_totals(tree):
    figures = {words(one[0]): words(one[1]) for one in tree.find(".//dl")}
    assert figures["decode on one core, accuracy bf16"] == "1.25 ms"
    assert figures["of it in convolutions"] == "1.00 ms"
    assert figures["as fast as the baseline, which takes 2.73 ms"] == "2.18 \u00d7"
    assert figures["moved to and from HBM by the convolutions"] == "45.0 MB"
    # 30 GFLOP in a millisecond are 30 TFLOP/s, of 78.6
    peak = next(number for what, number in figures.items() if "peak" in what)
    assert peak == "38 %"


def test_latencies_are_planned_or_bounds_and_say_which(tree, text):
    section = next(
        one for one in tree.iter("section") if words(one[0]) == "Latency by number of cores"
    )
    planned, ideal = section.find(".//tbody")
    assert [words(cell) for cell in planned] == ["1 coreplanned for one core", "", "1.25 ms"]
    assert words(ideal[-1]) == "at least 156 \u00b5s"
    assert "1.00 ms if only convolutions took time to 2.10 ms if torch" in words(section)


def test_a_share_of_the_peak_beyond_100_percent_is_explained_where_it_stands(tree):
    figures = [words(one[0]) for one in tree.find(".//dl")]
    assert (
        sum("fast algorithms need fewer, so it may exceed 100 %" in what for what in figures) == 1
    )


def test_a_page_without_baseline_or_timelines_says_so():
    made = example(timelines=())
    made = replace(
        made,
        totals=replace(made.totals, baseline_seconds=None, baseline_whole_seconds=None),
        contenders=made.contenders[:1],
        sensitivity=replace(made.sensitivity, readings=(), effects=(), without_effect=()),
    )
    tree = ET.fromstring(page(made))  # noqa: S314 (our own)
    assert "no stored time of the baseline" in words(tree)
    assert "as fast as the baseline" not in words(tree)
    assert "Engines on" not in words(tree)


def test_budgets_readings_and_effects_are_shown(tree):
    said = words(tree)
    for part in ("108 %", "13.0 GB", "119 \u00b5s", "\u22122.0 %", "+10.0 %"):
        assert part in said
    assert "pe_gap_cycles" in said
    assert "\u22121.5 % \u2026 +3.2 %" in said
    assert "Layer 1, 6 of 60 rows with the same plan" in said
    assert "Without effect on this layer: launch_ns." in said
    assert "trnconv report --model model -o 'a b.html'" in said
    over = [one for one in tree.iter("i") if one.get("class") == "over"]
    assert [one.get("style") for one in over] == ["width:100.0%"]


def test_pictures_and_tables_are_named_for_those_who_do_not_see_them(tree):
    pictures = list(tree.iter("svg"))
    assert len(pictures) == 2
    assert all(one.get("role") == "img" and one.get("aria-label") for one in pictures)
    assert all(one.find("title") is not None for one in pictures)
    assert all(one.find("caption") is not None for one in tree.iter("table"))
    for region in tree.iter("div"):
        if region.get("class") == "scroll":
            assert region.get("tabindex") == "0"
            assert region.get("aria-label")


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, two):
    low, high = sorted((luminance(one), luminance(two)))
    return (high + 0.05) / (low + 0.05)


def test_text_has_contrast_in_light_dark_and_print(text):
    schemes = re.findall(r":root \{(.*?)\}", text, re.DOTALL)
    assert len(schemes) == 3
    for scheme in schemes:
        colours = dict(re.findall(r"--(\w+): (#\w{6})", scheme))
        for name in ("ink", "faint", "tensor", "vector", "dma", "other"):
            ratio = contrast(colours[name], colours["paper"])
            assert ratio >= 4.5, f"{name} on paper: {ratio:.2f}"
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    assert contrast("#ffffff", "#000000") == pytest.approx(21)


def test_long_module_names_keep_their_ends():
    assert shortened("decoder.conv_in") == "decoder.conv_in"
    long = "decoder.up_blocks.2.upsamplers.0.resample.1"
    assert shortened(long) == "\u20262.upsamplers.0.resample.1"


def keys_of(kind):
    return {field.name for field in fields(kind)}


def test_the_json_has_every_field_and_survives_json():
    made = example()
    document = as_json(made)
    assert json.loads(json.dumps(document))["totals"] == document["totals"]
    assert (document["schema_version"], document["kind"]) == (4, "modelled")
    assert set(document) == keys_of(Report) | {"schema_version", "kind"}
    for name, value in vars(made).items():
        if is_dataclass(value):
            assert set(document[name]) == keys_of(type(value))
    assert document["layers"][1]["bound"] == "dma"
    assert document["layers"][1]["baseline_ns"] is None
    assert document["timelines"][0]["strips"][0]["levels"] == (1.0, 0.75, 0.875, 0.875)


def test_a_layer_of_its_own_has_a_page_too():
    alone = example(layers=(layer(1, 8, 8, 1e6, 1),))
    alone = replace(alone, subject=replace(alone.subject, kind="layer", phase=""))
    said = words(ET.fromstring(page(alone)))  # noqa: S314 (our own)
    assert "The layer is bound by the Tensor engine." in said
    assert "split ideally" not in said
