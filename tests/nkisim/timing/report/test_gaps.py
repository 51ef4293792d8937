"""Idle time is explained: all of it, by what was waited for."""

import pytest

import hand_built_timeline as by_hand
from nkisim.timing.report.gaps import explain, gaps_of, reasons
from nkisim.timing.report.lanes import lanes_of, times_run
from nkisim.timing.timeline import OTHER_CORE


def uses(timeline):
    return {use.lane: use for use in explain(timeline)}


def test_lanes_are_engines_and_directions_of_dma():
    assert list(uses(by_hand.pipeline())) == [
        "tensor",
        "vector",
        "scalar",
        "dma loads",
        "dma stores",
    ]


def test_idle_time_is_split_by_what_the_engine_waited_for():
    tensor = uses(by_hand.pipeline())["tensor"]
    assert tensor.occupied_ns == 400 + 400 + 300
    assert tensor.idle_ns_by_cause == pytest.approx(
        {
            "dma loads": 3100,
            "nothing left to do": 7300 - 5000,
            "vector tensor_copy": 4700 - 3910,
            "between instructions": 10,
        }
    )
    assert list(tensor.idle_ns_by_cause)[:2] == ["dma loads", "nothing left to do"]


def test_the_sentence_says_where_the_time_went():
    sentence = uses(by_hand.pipeline())["tensor"].idle_text
    assert sentence == (
        "6.20 us: 3.10 for dma loads, 2.30 nothing left to do, 0.79 for vector tensor_copy,"
        " 0.01 between instructions"
    )


def test_a_function_table_load_is_not_idle_time():
    scalar = uses(by_hand.pipeline())["scalar"]
    loaded = by_hand.TABLE_LOAD_NS
    assert scalar.idle_ns_by_cause == pytest.approx(
        {"nothing left to do": 7300 - 4400, "tensor nc_matmul": 4100 - loaded}
    )
    assert scalar.idle_ns == 7300 - 300 - loaded


def test_a_dma_direction_is_occupied_while_something_is_in_flight():
    loads, stores = (uses(by_hand.pipeline())[name] for name in ("dma loads", "dma stores"))
    assert (loads.is_dma, loads.instructions, loads.occupied_ns) == (True, 2, 3000)
    assert loads.idle_ns_by_cause == pytest.approx({"nothing left to do": 4300})
    assert stores.idle_ns_by_cause == pytest.approx(
        {"vector tensor_copy": 4700, "nothing left to do": 300}
    )


def test_the_longest_waits_name_both_instructions():
    first, second = uses(by_hand.pipeline())["tensor"].largest_waits
    assert (first.begin_ns, first.end_ns, first.after, first.cause) == (0, 3100, 2, 1)
    assert (second.begin_ns, second.end_ns, second.after, second.cause) == (3910, 4700, 5, 4)


def test_extrapolated_iterations_wait_like_the_one_they_repeat():
    vector = uses(by_hand.looped())["vector"]
    assert vector.instructions == 10
    assert vector.idle_ns_by_cause == pytest.approx(
        {
            "loop overhead": 9 * (6000 - 700),
            "dma loads": 600 + 9 * 600,
            "nothing left to do": 60_000 - 12_700 - 42_000,
        }
    )


def test_time_between_iterations_is_loop_overhead():
    loads = uses(by_hand.looped())["dma loads"]
    assert (loads.instructions, loads.occupied_ns) == (10, 5000)
    assert loads.idle_ns_by_cause == pytest.approx(
        {
            "loop overhead": 9 * (6000 - 500),
            "nothing left to do": 60_000 - 12_500 - 42_000,
        }
    )


def test_a_lane_that_waits_for_the_other_core_says_so():
    tile = by_hand.tensor("tile", by_hand.SBUF)
    rows = by_hand.Rows()
    rows.add((by_hand.engine.sync, "core_barrier"), (300, 400), (tile,), OTHER_CORE)
    (use,) = explain(rows.timeline(400.0, {"sync": 100.0}))
    assert use.idle_text == "0.30 us: 0.30 until the other core came"


def gaps_by_lane(timeline):
    return {lane.name: list(gaps_of(lane, timeline)) for lane in lanes_of(timeline)}


def test_a_gap_across_extrapolated_iterations_is_only_idle_outside_of_them():
    last = gaps_by_lane(by_hand.looped())["vector"][-1]
    assert (last.begin_ns, last.end_ns, last.elided_ns) == (12_700, 60_000, 42_000)
    assert last.idle_ns == 60_000 - 12_700 - 42_000


def test_a_lane_without_work_in_a_loop_is_idle_while_the_loop_runs():
    timeline = by_hand.looped()
    first, last = gaps_by_lane(timeline)["dma stores"]
    assert (first.elided_ns, first.idle_ns, last.idle_ns) == (0, 59_000, 100)
    assert list(reasons(first, timeline.events)) == [("loop overhead", 59_000)]


def test_nested_extrapolated_loops_multiply():
    timeline = by_hand.looped()
    inner = by_hand.Elision(0.0, 0.0, 3, 0.0, 5, 6)
    outer = by_hand.Elision(0.0, 0.0, 7, 0.0, 4, 6)
    nested = by_hand.Rows()
    nested.events = timeline.events
    times = times_run(nested.timeline(1.0, {}, (inner, outer)))
    assert list(times) == [1, 1, 1, 1, 8, 4 * 8, 1]


@pytest.mark.parametrize("case", [by_hand.pipeline, by_hand.looped, lambda: by_hand.many(50)])
def test_busy_and_idle_time_add_up_to_the_makespan(case):
    timeline = case()
    for use in explain(timeline):
        assert use.occupied_ns + use.idle_ns == pytest.approx(timeline.makespan_ns)
        assert sum(use.idle_ns_by_cause.values()) == pytest.approx(use.idle_ns)


def test_rows_that_start_out_of_program_order_are_put_in_order():
    tile = by_hand.tensor("tile", by_hand.SBUF)
    rows = by_hand.Rows()
    rows.add(by_hand.ADD, (300, 400), (tile, tile))
    rows.add(by_hand.ADD, (0, 100), (tile, tile))
    timeline = rows.timeline(400.0, {"vector": 200.0})
    (lane,) = lanes_of(timeline)
    assert [(gap.begin_ns, gap.end_ns) for gap in gaps_of(lane, timeline)] == [(100, 300)]


def test_a_lane_that_never_idles_says_so():
    (use,) = explain(by_hand.many(5, busy_ns=10.0))
    assert use.idle_text == "never idle"
