"""The trace for Perfetto."""

import json
import tracemalloc
from itertools import pairwise

import pytest

import hand_built_timeline as by_hand
from nkisim.timing.report import write_perfetto

CASES = {"pipeline": by_hand.pipeline, "looped": by_hand.looped}


def trace_of(timeline, folder):
    file = folder / "trace.json"
    write_perfetto(timeline, file, "kernel")
    return json.loads(file.read_text())


def threads_of(trace):
    """Complete events by the name of their thread."""
    names = {
        event["tid"]: event["args"]["name"]
        for event in trace["traceEvents"]
        if event["name"] == "thread_name"
    }
    threads = {name: [] for name in names.values()}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            threads[names[event["tid"]]].append(event)
    return threads


def test_it_says_what_kind_of_number_it_holds(tmp_path):
    trace = trace_of(by_hand.pipeline(), tmp_path)
    facts = trace["otherData"]
    assert facts["label"] == "modelled, trn2, constants 1, default reading"
    assert (facts["kind"], facts["machine"]) == ("modelled", "trn2")
    assert (facts["constants_version"], facts["reading"]) == ("1", "default")
    process = next(event for event in trace["traceEvents"] if event["name"] == "process_name")
    assert process["args"]["name"] == f"core 0: kernel ({facts['label']})"


def test_a_thread_for_each_engine_and_direction_of_dma(tmp_path):
    threads = threads_of(trace_of(by_hand.pipeline(), tmp_path))
    assert set(threads) == {"tensor", "vector", "scalar", "dma loads", "dma stores"}


@pytest.mark.parametrize("name", CASES)
def test_events_are_in_order_and_do_not_overlap_in_a_thread(name, tmp_path):
    trace = trace_of(CASES[name](), tmp_path)
    threads = threads_of(trace)
    engines = [e for name, events in threads.items() if "loop" not in name for e in events]
    complete = [e for e in trace["traceEvents"] if e["ph"] == "X" and e in engines]
    assert [e["ts"] for e in complete] == sorted(e["ts"] for e in complete)
    for events in threads.values():
        assert all(event["dur"] >= 0 for event in events)
        for one, two in pairwise(events):
            assert one["ts"] + one["dur"] <= two["ts"] + 1e-9


def test_durations_add_up_to_busy_time(tmp_path):
    timeline = by_hand.pipeline()
    threads = threads_of(trace_of(timeline, tmp_path))
    for name in ("tensor", "vector", "scalar"):
        total_us = sum(event["dur"] for event in threads[name])
        assert total_us == pytest.approx(timeline.busy_ns[name] / 1000)


def test_an_event_says_what_it_works_on_and_what_it_waited_for(tmp_path):
    threads = threads_of(trace_of(by_hand.pipeline(), tmp_path))
    (event,) = threads["vector"]
    assert (event["name"], event["ts"], event["dur"]) == ("evict", 4.1, 0.5)
    assert event["args"]["op"] == "tensor_copy"
    assert event["args"]["writes"] == ["result[128, 512] float32"]
    assert event["args"]["reads"] == ["total[128, 512] float32"]
    assert event["args"]["waited_for"] == "nc_matmul #3 (total) on tensor"
    assert threads["tensor"][1]["args"]["waited_for"] == ""


def test_a_transfer_is_shown_after_the_one_before_and_keeps_its_issue(tmp_path):
    _, second = threads_of(trace_of(by_hand.pipeline(), tmp_path))["dma loads"]
    assert (second["ts"], second["dur"], second["args"]["issued_us"]) == (2.0, 1.0, 0.5)


def test_a_function_table_load_is_an_event_of_its_own(tmp_path):
    load, work = threads_of(trace_of(by_hand.pipeline(), tmp_path))["scalar"]
    assert (load["name"], load["ts"], load["dur"]) == ("function table load", 0.0, 1.3)
    assert work["name"] == "activation"


def test_extrapolated_iterations_are_one_event(tmp_path):
    threads = threads_of(trace_of(by_hand.looped(), tmp_path))
    (event,) = threads["extrapolated loop iterations"]
    assert event["name"] == "7 iterations of 6.00 us, extrapolated"
    assert (event["ts"], event["dur"], event["args"]["iterations"]) == (17.0, 42.0, 7)


def test_matmuls_side_by_side_get_threads_side_by_side(tmp_path):
    tile, total = by_hand.tensor("tile", by_hand.SBUF), by_hand.tensor("total", by_hand.PSUM)
    rows = by_hand.Rows()
    for start in (0, 10, 20, 100):
        rows.add(by_hand.MATMUL, (start, start + 90), (total, tile, tile))
    threads = threads_of(trace_of(rows.timeline(190.0, {"tensor": 190.0}), tmp_path))
    assert {name: len(events) for name, events in threads.items()} == {
        "tensor": 2,
        "tensor, beside (2)": 1,
        "tensor, beside (3)": 1,
    }


def test_a_transfer_overtaken_by_the_one_before_takes_no_time(tmp_path):
    tile, x = by_hand.tensor("tile", by_hand.SBUF), by_hand.tensor("x", by_hand.HBM)
    rows = by_hand.Rows()
    rows.add(by_hand.LOAD, (0, 3000), (tile, x))
    rows.add(by_hand.LOAD, (500, 2500), (tile, x))
    loads = threads_of(trace_of(rows.timeline(3000.0, {"dma": 1.0}), tmp_path))["dma loads"]
    assert [(event["ts"], event["dur"]) for event in loads] == [(0.0, 3.0), (3.0, 0.0)]


@pytest.mark.slow
def test_writing_takes_little_memory(tmp_path):
    timeline = by_hand.many(20_000)
    file = tmp_path / "trace.json"
    tracemalloc.start()
    try:
        write_perfetto(timeline, file, "many")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(json.loads(file.read_text())["traceEvents"]) == 20_000 + 3
    assert peak_bytes < file.stat().st_size / 2
