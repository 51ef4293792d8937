"""`time`, `trace`, `verify`, `bench` and `report`: answers, files, refusals and exit codes."""

import json
from xml.etree import ElementTree as ET

import pytest

from cli_runs import answer
from nkisim.machine import TRN2, Reading
from nkisim.timing import schedule_launch
from trnconv.baseline import layer_ns
from trnconv.cases import BENCHMARK, find
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.policy import Policy
from trnconv.report.schedules import time_layer
from trnconv.runtime.launch import trace_plans
from trnconv.runtime.plans import plans_for
from trnconv.runtime.pricing import price
from trnconv.verification import layer as verification

SMALL = ("--channels", "16:24", "--kernel", "3x3", "--size", "12x20", "--padding", "1")


def test_time_is_the_schedule_in_every_reading(run):
    found = answer(run("time", "image_2x8", "--cores", "1", "--json"))
    timed = time_layer(ConvProblem(find("image_2x8").shape, TRN2), cores=1)
    assert {name: one["ns"] for name, one in found["readings"].items()} == {
        reading.value: timed.ns(reading) for reading in Reading
    }
    line = timed.longest.timelines[Reading.default]
    default = found["readings"]["default"]
    assert default["bound"] == line.bound
    assert default["mfu"] == pytest.approx(line.mfu)
    assert default["busy"]["tensor"] == pytest.approx(line.busy_ns["tensor"] / line.makespan_ns)
    assert found["hbm_bytes"] == line.hbm_bytes
    assert found["static_instructions"] == line.static_instructions
    assert (found["kind"], found["machine"], found["constants_version"]) == (
        "modelled",
        "trn2",
        "3",
    )


def test_time_of_two_cores_is_that_of_both_on_one_clock(run):
    found = answer(run("time", "image_2x8", "--json"))
    plans = plans_for(ConvProblem(find("image_2x8").shape, TRN2))
    launch = trace_plans(plans)
    both = schedule_launch(launch.traces, TRN2, memories=launch.memories)
    assert found["cores"] == len(both) == 2
    default = found["readings"]["default"]
    assert default["ns"] == max(line.makespan_ns for line in both)
    assert found["hbm_bytes"] == sum(line.hbm_bytes for line in both)
    busy = sum(line.busy_ns["tensor"] for line in both) / (2 * default["ns"])
    assert default["busy"]["tensor"] == pytest.approx(busy)
    peak = 2 * default["ns"] * 128 * 128 * 2.4
    assert default["of_peak"] == pytest.approx(find("image_2x8").shape.macs() / peak)
    assert "two cores (LNC2)" in run("time", "image_2x8").out


def test_trace_shows_the_core_that_ends_last_or_the_one_asked_for(run):
    last, *each = (
        answer(run("trace", "image_2x8", *more, "--json"))
        for more in ((), ("--core", "0"), ("--core", "1"))
    )
    assert [one["core"] for one in each] == [0, 1]
    assert last["makespan_ns"] == max(one["makespan_ns"] for one in each)
    refused = run("trace", "image_2x8", "--cores", "1", "--core", "1")
    assert (refused.code, "--core 1 of a launch on 1" in refused.err) == (2, True)


def test_time_in_words_has_machine_readings_and_that_nothing_was_measured(run):
    ran = run("time", *SMALL, "--machine", "trn3", "--accuracy", "direct")
    assert ran.code == 0
    assert "Modelled: trn3, constants 3" in ran.out
    assert "nothing was measured" in ran.out
    assert {"optimistic", "default", "pessimistic"} <= set(ran.out.split())
    assert "layer: 16 to 24 channels, 1x3x3, input 1x12x20." in ran.out


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--channels", "8"), {"c_in": 8, "c_out": 8}),
        (("--padding", "2:0x1x1"), {"pad_before": (2, 1, 1), "pad_after": (0, 1, 1)}),
        (("--padding", "same"), {"pad_before": (1, 1, 1)}),
        (("--stride", "1x2x2"), {"stride": (1, 2, 2)}),
        (("--dilation", "2"), {"dilation": (2, 2, 2)}),
        (("--groups", "4"), {"groups": 4}),
        (("--batch", "3"), {"batch": 3}),
        ((), {"size": (5, 9, 12), "kernel": (3, 3, 3), "c_in": 8, "c_out": 16}),
    ],
)
def test_options_describe_a_layer(options, expected):
    from trnconv.cli.layer_options import LayerOptions, asked_layer

    given = {"channels": "8:16", "kernel": "3x3x3", "size": "5x9x12"}
    named = zip(options[::2], options[1::2], strict=True)
    given |= {name.removeprefix("--"): value for name, value in named}
    given |= {name: int(given[name]) for name in ("groups", "batch") if name in given}
    shape = asked_layer(LayerOptions(**given)).shape
    assert {name: getattr(shape, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("time",), "a layer without --channels, --kernel, --size"),
        (("time", "a", "--kernel", "3x3"), "a named layer has its own shape"),
        (("time", "nonesuch"), "there is none"),
        (("time", *SMALL[:4], "--size", "2x12x20"), "they have 2 and 3 axes"),
        (("time", *SMALL[:-1], "1;1"), "--padding 1;1: write a number"),
        (("time", "--channels", "a", *SMALL[2:]), "--channels a: write input:output"),
        (("time", *SMALL, "--groups", "5"), "--groups 5 of 16 input and 24 output channels"),
        (("time", *SMALL, "--dtype", "int8"), "--dtype int8: the kernels take"),
        (("time", "a", "--machine", "h100"), "--machine h100: use trn1, trn2, trn3"),
        (("time", "a", "--accuracy", "half-hearted"), "one of direct, bf16, fast"),
        (("trace", "a", "--reading", "rosy"), "one of optimistic, default, pessimistic"),
        (("verify", "a", "--phase", "decode"), "models have phases"),
        (("verify", "a", "--model", "wan2.1"), "these options describe a single layer"),
        (("verify", "--model", "wan2.1", "--seed", "3"), "the registry's random weights"),
        (("verify", "--model", "wan2.1", "--size", "64x64x9"), "Leave --size out"),
        (("verify", "--model", "nonesuch"), "not in the registry"),
        (("bench", "a", "--model", "wan2.1"), "give layers or models, not both"),
        (("bench", "--model", "wan2.1", "--cpu"), "Measure layers"),
        (("bench", "nonesuch"), "there is none"),
        (
            ("report", "a", "-o", "no/such/folder/x.html"),
            "it cannot be written (No such file or directory)",
        ),
        (("report", "--model", "wan2.1", "--size", "7"), "write height x width x frames"),
        (("report", "a", "--phase", "decode"), "models have phases"),
    ],
)
def test_refusals_are_words_and_exit_code_2(run, arguments, words):
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("trnconv: ")
    assert words in " ".join(ran.err.split())


def test_trace_writes_a_picture_and_a_perfetto_file(run, tmp_path):
    svg, perfetto = tmp_path / "t.svg", tmp_path / "t.json"
    ran = run("trace", "image_2x8", "--cores", "1", "--svg", str(svg), "--perfetto", str(perfetto))
    assert ran.code == 0
    assert "image_2x8: modelled, trn2, constants 3, default reading" in ran.out
    assert ET.fromstring(svg.read_text()).tag.endswith("svg")  # noqa: S314 (our own)
    assert json.loads(perfetto.read_text())["traceEvents"]
    assert f"wrote {svg}" in ran.out


def test_trace_in_another_reading(run):
    times = {
        name: answer(run("trace", "image_2x8", "--reading", name, "--json"))["makespan_ns"]
        for name in ("optimistic", "default", "pessimistic")
    }
    assert times["optimistic"] < times["default"] < times["pessimistic"]


def test_verify_passes_and_says_what_was_run(run):
    found = answer(run("verify", "image_2x8", "--seed", "1", "--json"))
    assert found["passed"]
    assert found["cut"] == ""
    assert found["errors"]["outside"] == 0
    assert found["errors"]["outputs"] == 128 * 16
    text = run("verify", "image_2x8").out
    assert "normal data of seed 0, all of it" in text
    assert text.endswith("passed\n")


def test_verify_says_what_it_cut(run, monkeypatch):
    monkeypatch.setattr(verification, "MOST_EFFORT", 10**7)
    ran = run("verify", *SMALL[:4], "--size", "60x80")
    assert ran.code == 0
    assert "cut to" in ran.out
    assert "of 60 rows" in ran.out


def test_verify_fails_with_exit_code_1(run, monkeypatch):
    right = verification.forward
    monkeypatch.setattr(verification, "forward", lambda *given: right(*given) + 0.5)
    ran = run("verify", "image_2x8")
    assert ran.code == 1
    assert ran.out.endswith("FAILED\n")
    assert not json.loads(run("verify", "image_2x8", "--json").out)["passed"]


@pytest.mark.diffusers
def test_verify_a_model_against_torch(run):
    found = answer(run("verify", "--model", "sdxl", "--json"))
    assert found["passed"]
    assert found["patched"] > 0
    assert found["ours"]["rms"] <= 2 * found["floor"]["rms"] + 0.005


def test_bench_has_our_prices_beside_the_stored_baseline(run):
    (row,) = answer(run("bench", "k3", "--json"))["rows"]
    shape = find("k3").shape
    for accuracy, seconds in row["seconds"].items():
        asked = ConvProblem(shape, TRN2, policy=Policy(accuracy))
        assert seconds == pytest.approx(price(asked, cores=2).ns / 1e9)
    assert row["baseline_seconds"] == pytest.approx(layer_ns(shape) / 2e9)
    assert "cpu_measured_seconds" not in row
    (alone,) = answer(run("bench", "k3", "--cores", "1", "--json"))["rows"]
    assert alone["baseline_seconds"] == pytest.approx(layer_ns(shape) / 1e9)
    assert alone["seconds"]["bf16"] == pytest.approx(
        price(ConvProblem(shape, TRN2), cores=1).ns / 1e9
    )


def test_bench_measures_this_cpu_only_if_asked_and_says_so(run):
    ran = run("bench", "k3", "image_2x8", "--cpu")
    assert ran.code == 0
    assert "this CPU, ms" in ran.out
    assert "This CPU: really measured" in ran.out
    assert "nothing was measured on a device" in " ".join(ran.out.split())
    (row,) = answer(run("bench", "k3", "--cpu", "--json"))["rows"]
    assert row["cpu_measured_seconds"] > 0
    assert "float32" in row["cpu_measured_by"]


def test_bench_elsewhere_has_no_baseline(run):
    (row,) = answer(run("bench", "k3", "--machine", "trn1", "--json"))["rows"]
    assert row["baseline_seconds"] is None


@pytest.mark.slow
def test_bench_of_a_model(run):
    first, second = answer(run("bench", "--model", "sdxl", "--json"))["rows"]
    assert [first["name"], second["name"]] == ["sdxl 1024x1024 encode", "sdxl 1024x1024 decode"]
    assert second["seconds"]["fast"] <= second["seconds"]["bf16"] <= second["seconds"]["direct"]
    assert second["baseline_seconds"] == pytest.approx(0.082, abs=0.0005)  # README.md


def test_every_benchmark_has_a_key():
    assert len({case.key for case in BENCHMARK}) == len(BENCHMARK)


def test_report_of_a_layer_writes_a_page_and_its_content(run, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    html = tmp_path / "r.html"
    ran = run("report", "image_2x8", "-o", str(html), "--no-effects")
    assert (ran.code, ran.err) == (0, "")
    assert f"wrote {html}" in ran.out
    assert "nothing was measured" in ran.out
    document = answer(run("report", "image_2x8", "-o", str(html), "--json"))
    tree = ET.fromstring(html.read_text())  # noqa: S314 (our own)
    assert document["origin"]["date"] == "1970-01-02"
    command = document["origin"]["command"]
    assert command.startswith("trnconv report image_2x8 --machine trn2 --accuracy bf16")
    assert command in "".join(tree.itertext())
    assert len(document["layers"]) == 1
    assert document["timelines"]


def test_report_as_json_on_stdout_writes_no_page(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = answer(run("report", "image_2x8", "--json", "--heaviest", "0", "--no-effects"))
    assert found["subject"]["name"] == "image_2x8"
    assert found["timelines"] == []
    assert list(tmp_path.glob("*.html")) == []


@pytest.mark.slow
def test_report_of_a_model_by_default_is_a_file_here(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = run("report", "--model", "sdxl", "--accuracy", "direct", "--heaviest", "0")
    assert ran.code == 0
    assert "wrote report.html" in ran.out
    text = (tmp_path / "report.html").read_text()
    rows = text.count('id="layer-')
    plan = answer(run("plan", "--model", "sdxl", "--accuracy", "direct", "--json"))
    assert rows == len(plan["layers"]) > 10
