"""The report for programs."""

import json

import pytest

import hand_built_timeline as by_hand
from nkisim.timing.report import json_report


def report_of(timeline):
    return json.loads(json.dumps(json_report(timeline, "kernel")))


def test_it_says_what_kind_of_number_it_holds():
    report = report_of(by_hand.pipeline())
    assert report["schema_version"] == 1
    assert (report["kind"], report["kernel"]) == ("modelled", "kernel")
    assert report["label"] == "modelled, trn2, constants 1, default reading"
    assert (report["machine"], report["constants_version"]) == ("trn2", "1")
    assert report["reading"] == "default"


def test_totals():
    report = report_of(by_hand.pipeline())
    assert (report["makespan_ns"], report["launch_ns"], report["latency_ns"]) == (
        7300,
        10_000,
        17_300,
    )
    assert report["hbm_gb_per_s"] == pytest.approx(1_000_000 / 7300)
    assert report["mfu_share"] == pytest.approx(3 * 512 / (7300 * 2.4))
    assert report["bound"] == "latency"
    assert report["memory"] == {
        "sbuf_peak_bytes_per_partition": 4096,
        "sbuf_usable_bytes_per_partition": 212_984,
        "psum_peak_banks": 2,
        "psum_banks": 8,
    }
    assert (report["static_instructions"], report["executed_instructions"]) == (8, 8)


def test_engines_and_directions_of_dma():
    report = report_of(by_hand.pipeline())
    engines = {engine["name"]: engine for engine in report["engines"]}
    assert list(engines) == ["tensor", "vector", "scalar"]
    assert engines["tensor"]["busy_ns"] == 1100
    assert engines["tensor"]["busy_share"] == pytest.approx(1100 / 7300)
    assert engines["tensor"]["idle_ns_by_cause"]["dma loads"] == pytest.approx(3100)
    wait = engines["tensor"]["longest_waits"][1]
    assert wait["waiting"] == "nc_matmul #5 (total)"
    assert wait["waited_for"] == "tensor_copy evict #4 (result)"
    assert (wait["begin_ns"], wait["duration_ns"]) == (3910, 790)
    assert (report["dma"]["data_busy_ns"], report["dma"]["issue_busy_ns"]) == (900, 1650)
    loads, stores = report["dma"]["directions"]
    assert (loads["name"], loads["in_flight_ns"]) == ("dma loads", 3000)
    assert (stores["name"], stores["idle_ns"]) == ("dma stores", 5000)


def test_extrapolated_loops():
    assert report_of(by_hand.looped())["extrapolated_loops"] == [
        {"at_ns": 17_000, "duration_ns": 42_000, "iterations": 7, "ns_per_iteration": 6000}
    ]
    assert report_of(by_hand.pipeline())["extrapolated_loops"] == []


def keys_of(value):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, inner
            if key != "idle_ns_by_cause":
                yield from keys_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys_of(inner)


def test_fractions_have_their_unit_in_the_name():
    units = ("_ns", "_share", "_per_s", "ns_per_iteration", "_by_cause")
    numbers = [key for key, value in keys_of(report_of(by_hand.looped())) if type(value) is float]
    assert numbers
    assert [key for key in numbers if not key.endswith(units)] == []
