"""Whole models planned without torch: from what was traced, within a graph's instructions."""

import json
from collections import Counter
from dataclasses import dataclass, replace
from importlib import resources

import pytest

from causal_run import causal_run
from nkisim.machine import TRN2
from trnconv.errors import PlanError, ShapeError, UnsupportedError
from trnconv.geometry import conv_shape
from trnconv.model_plan import (
    PlanOptions,
    Prices,
    model_plan,
    model_trace,
    plan_trace,
    planned_sizes,
)
from trnconv.model_plan import plans as plans_module
from trnconv.model_plan import traces as traces_module
from trnconv.models import Size, find, models
from trnconv.models.sizes import size_of
from trnconv.problem.epilogue import Epilogue, NormEpilogue
from trnconv.problem.launches import launches
from trnconv.problem.limits import DEFAULT_BUDGET, GRAPH_INSTRUCTIONS
from trnconv.problem.policy import ALWAYS_DIRECT
from trnconv.runtime.graph import GraphBudget, price_graph
from trnconv.runtime.pricing import price
from trnconv.traces import TracedConv, graphs_of, shipped, shipped_text
from trnconv.traces.files import file_name, trace_of

DIRECT = PlanOptions(accuracy="direct")
JOBS = [
    (entry, size, phase)
    for entry in models()
    for size in planned_sizes(entry)
    for phase in entry.phases
]


@pytest.mark.parametrize(
    ("entry", "size", "phase"), JOBS, ids=lambda one: getattr(one, "name", one)
)
def test_every_size_of_the_registry_is_traced(entry, size, phase):
    seen = shipped(entry, size, phase)
    assert (seen.model, seen.phase) == (entry.name, phase)
    assert (seen.frames, seen.height, seen.width) == (size.frames, size.height, size.width)
    assert seen.works
    assert seen.peak_bytes >= seen.largest_bytes > 0


def test_there_is_no_file_that_nobody_reads():
    folder = resources.files("trnconv.traces") / "data"
    names = {one.name for one in folder.iterdir()}
    assert names == {file_name(*job) for job in JOBS}


def test_a_file_is_what_its_trace_writes():
    entry = find("sdxl")
    name = file_name(entry, entry.production, "decode")
    text = (resources.files("trnconv.traces") / "data" / name).read_text(encoding="utf-8")
    seen = trace_of(json.loads(text))
    assert shipped_text(seen) == text


@pytest.fixture(scope="module")
def plan():
    return model_plan("sdxl", "1024x1024", "decode", DIRECT)


def test_totals_are_those_of_every_single_call(plan):
    prices = {}
    total_ns = instructions = hbm_bytes = macs = 0
    for work, calls in plan.trace.works:
        key = (work.shape, work.epilogue)
        prices[key] = prices.get(key) or price(work.problem(TRN2, policy=ALWAYS_DIRECT))
        total_ns += calls * prices[key].ns
        instructions += calls * prices[key].instructions
        hbm_bytes += calls * prices[key].hbm_bytes
        macs += calls * (work.instead_of or work.shape).macs()
    assert plan.seconds == pytest.approx(total_ns / 1e9, rel=1e-12)
    assert (plan.instructions, plan.convolution_bytes) == (instructions, hbm_bytes)
    assert plan.macs == macs
    assert plan.fits_a_graph


def test_equal_calls_are_one_layer(plan):
    modules = [name for layer in plan.layers for name in layer.modules]
    assert len(modules) == len(plan.trace.works) > len(plan.layers)
    assert sum(layer.calls for layer in plan.layers) == plan.trace.calls == plan.calls
    assert len({layer.work.problem(TRN2) for layer in plan.layers}) == len(plan.layers)


def test_the_heaviest_come_first(plan):
    times = [layer.ns for layer in plan.heaviest()]
    assert times == sorted(times, reverse=True)
    assert plan.heaviest(2) == plan.heaviest()[:2]


def test_a_plan_says_where_its_times_come_from(plan):
    assert plan.label.startswith("modelled, trn2, constants ")
    assert plan.label.endswith(", default reading, two cores (LNC2)")


def test_prices_are_not_asked_twice(plan):
    asked = []
    known = Prices(watch=lambda done, count: asked.append((done, count)))
    plan_trace(plan.trace, plan.size, DIRECT, known)
    first = len(asked)
    plan_trace(plan.trace, plan.size, DIRECT, known)
    assert len(asked) == first == len(plan.layers)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "720p81"),
        ("480p81", "480p81"),
        ("720x1280x81", "720p81"),
        ("64x96x9", "64x96x9"),
    ],
)
def test_sizes_are_written_as_people_write_them(text, expected):
    size = size_of(find("wan2.1"), text)
    assert size.name == expected
    if "x" in text:
        numbers = tuple(int(one) for one in text.split("x"))
        assert (size.height, size.width, size.frames) == (*numbers, 1)[:3]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("large", "height x width x frames, such as 720x1280x81"),
        ("720x1280x80", "4n+1 frames"),
        ("721x1280x81", "multiple of 8"),
        ("1x2x3x4", "or one of 720p81"),
    ],
)
def test_sizes_that_a_model_cannot_take_are_refused(text, words):
    with pytest.raises(ShapeError) as refusal:
        size_of(find("wan2.1"), text)
    assert words in str(refusal.value)


def test_other_sizes_without_torch_say_what_to_install(monkeypatch):
    monkeypatch.setattr(traces_module, "find_spec", lambda _name: None)
    with pytest.raises(UnsupportedError) as refusal:
        model_trace(find("allegro"), Size("small", 88, 480, 832), "decode")
    for words in (
        "480x832x88",
        "torch and diffusers",
        "pip install 'trnconv[diffusers]'",
        "720x1280x88",
    ):
        assert words in str(refusal.value)


def test_a_phase_that_a_model_has_not_is_refused():
    with pytest.raises(UnsupportedError, match="it can encode and decode"):
        model_plan("sdxl", "", "sideways")


@dataclass(frozen=True)
class MadeUp:
    """A price of a convolution that gets slower the shorter it must be."""

    ns: float
    instructions: int
    regions: int = 0


def asking(table):
    def ask(budget):
        return next((one for one in table if one.instructions <= budget), table[-1])

    return ask


CHEAP_TO_SHORTEN = [MadeUp(100.0, 20_000), MadeUp(101.0, 5_000)]
DEAR_TO_SHORTEN = [MadeUp(100.0, 20_000), MadeUp(200.0, 5_000)]


def test_a_graph_that_fits_keeps_the_fastest_plans():
    asked = [(asking(CHEAP_TO_SHORTEN), 100), (asking(DEAR_TO_SHORTEN), 100)]
    assert price_graph(asked) == [CHEAP_TO_SHORTEN[0], DEAR_TO_SHORTEN[0]]


def test_what_is_cheap_to_shorten_is_shortened_first():
    asked = [(asking(DEAR_TO_SHORTEN), 150), (asking(CHEAP_TO_SHORTEN), 150)]
    assert price_graph(asked) == [DEAR_TO_SHORTEN[0], CHEAP_TO_SHORTEN[1]]
    assert 150 * (20_000 + 5_000) <= GRAPH_INSTRUCTIONS < 150 * 2 * 20_000


def test_all_are_shortened_if_they_must_be():
    asked = [(asking(DEAR_TO_SHORTEN), 300), (asking(CHEAP_TO_SHORTEN), 300)]
    assert price_graph(asked) == [DEAR_TO_SHORTEN[1], CHEAP_TO_SHORTEN[1]]


def test_minor_convolutions_are_left_alone_if_others_can_be_shortened():
    found = price_graph([(asking(DEAR_TO_SHORTEN), 260), (asking(CHEAP_TO_SHORTEN), 1)])
    assert found == [DEAR_TO_SHORTEN[1], CHEAP_TO_SHORTEN[0]]


def test_minor_convolutions_are_shortened_if_nothing_else_helps():
    crowd = [(asking(CHEAP_TO_SHORTEN), 1)] * 60
    found = price_graph([(lambda _budget: DEAR_TO_SHORTEN[0], 230), *crowd])
    assert found[0] == DEAR_TO_SHORTEN[0]
    assert CHEAP_TO_SHORTEN[1] in found
    assert 230 * 20_000 + sum(one.instructions for one in found[1:]) <= GRAPH_INSTRUCTIONS


@pytest.mark.parametrize(
    ("slower", "asked"),
    [
        (100.1, [DEFAULT_BUDGET, 6_000]),  # an equal share of the graph costs next to nothing
        (101.0, [DEFAULT_BUDGET, 6_000, 12_000]),  # 24,000 gives no other program
    ],
)
def test_what_need_not_be_searched_is_not_asked_for(slower, asked):
    limits = []

    def ask(limit):
        limits.append(limit)
        return asking([MadeUp(100.0, 20_000), MadeUp(slower, 5_000)])(limit)

    assert price_graph([(ask, 800)]) == [MadeUp(slower, 5_000)]
    assert limits == asked


def test_where_some_have_no_program_as_short_as_their_share_others_are_shorter():
    stubborn = [MadeUp(100.0, 20_000)]
    willing = [MadeUp(100.0, 20_000), MadeUp(101.0, 5_500), MadeUp(102.0, 3_500)]
    asked = [(asking(stubborn), 100), (asking(willing), 700)]
    assert price_graph(asked) == [stubborn[0], willing[2]]
    assert 100 * 20_000 + 700 * 3_500 <= GRAPH_INSTRUCTIONS < 100 * 20_000 + 700 * 5_500


def test_shipped_launches_start_no_processes(monkeypatch):
    """Also those of convolutions whose offsets need several launches."""
    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor", None)
    entry = find("kvae-video")
    seen = shipped(entry, size_of(entry, "720p81"), "decode")
    asked = [work.problem(TRN2) for work, _ in seen.works]
    assert len({problem for problem in asked if len(launches(problem.shape)) > 1}) >= 8
    Prices(jobs=2).prepare(asked)


def test_one_without_a_shorter_program_keeps_the_one_it_has():
    """Such as one with a norm at its start: that limit has no plan, the graph has."""

    def ask(limit):
        if limit < DEFAULT_BUDGET:
            raise PlanError("none")
        return MadeUp(100.0, 20_000)

    found = price_graph([(ask, 100), (asking(CHEAP_TO_SHORTEN), 700)])
    assert found == [MadeUp(100.0, 20_000), CHEAP_TO_SHORTEN[1]]


def test_room_that_is_left_is_used():
    """One worth of an instruction for all would shorten the two that are alike, or neither."""
    alike = asking([MadeUp(100.0, 20_000), MadeUp(130.0, 5_000)])
    found = price_graph([(alike, 2), (alike, 3), (asking(CHEAP_TO_SHORTEN), 985)])
    assert found == [alike(20_000), alike(5_000), CHEAP_TO_SHORTEN[1]]


LOOPED = [MadeUp(100.0, 300_000), MadeUp(103.0, 40_000, 1), MadeUp(110.0, 10_000, 1)]
SMALL = [MadeUp(10.0, 30_000), MadeUp(11.0, 9_000, 1)]


def test_loops_of_a_graph_are_counted_too():
    asked = [(asking(LOOPED), 1), (asking(SMALL), 3)]
    free = price_graph(asked, GraphBudget(instructions=150_000))
    assert free == [LOOPED[1], SMALL[0]]
    one = price_graph(asked, GraphBudget(instructions=400_000, regions=0))
    assert one == [LOOPED[0], SMALL[0]]
    tight = price_graph(asked, GraphBudget(instructions=140_000, regions=1))
    assert tight == [LOOPED[1], SMALL[0]]


def test_a_graph_that_no_mix_fits_gets_the_shortest_programs():
    asked = [(asking(LOOPED), 1), (asking(SMALL), 3)]
    assert price_graph(asked, GraphBudget(instructions=1_000)) == [LOOPED[2], SMALL[1]]
    assert price_graph([], GraphBudget(instructions=1_000)) == []


def test_a_graph_that_must_be_split_fills_its_parts():
    """Two parts hold the shortest programs, and have room for one that is faster."""
    asked = [(asking(LOOPED), 1), (asking(SMALL), 3)]
    found = price_graph(asked, GraphBudget(instructions=36_000))
    assert found == [LOOPED[1], SMALL[1]]
    assert 36_000 < 10_000 + 3 * 9_000 < 40_000 + 3 * 9_000 <= 2 * 36_000


@dataclass(frozen=True)
class Named:
    """A convolution of a module."""

    module: str
    size: int


def called(module, *sizes):
    """A module that was called with these sizes, one after the other."""
    return [(Named(module, size), count) for size, count in sizes]


CAUSAL = [
    *called("around", (9, 1)),
    *called("first", (1, 1), (2, 1), (4, 19)),
    *called("second", (1, 1), (4, 20)),
    *called("in time", (2, 1), (4, 19)),
]


def test_chunks_that_call_the_same_are_one_graph():
    """As Wan decodes: a first chunk without upsampling in time, a second one, 19 steady ones."""
    one, two, steady, around = graphs_of(CAUSAL)
    assert [graph.launches for graph in (one, two, steady, around)] == [1, 1, 19, 1]
    assert one.works == ((Named("first", 1), 1), (Named("second", 1), 1))
    assert [work for work, _ in two.works] == [
        Named("first", 2),
        Named("second", 4),
        Named("in time", 2),
    ]
    assert {work.size for work, _ in steady.works} == {4}
    assert around.works == ((Named("around", 9), 1),)
    assert (one.name, steady.name) == ("chunk 1 of 21", "19 of 21 chunks, from 3 on")


def test_every_call_is_in_one_graph():
    calls = Counter()
    for graph in graphs_of(CAUSAL):
        for work, times in graph.works:
            calls[work] += graph.launches * times
    assert calls == Counter(dict(CAUSAL))


@pytest.mark.parametrize(
    "works",
    [
        [],
        called("once", (3, 1)),
        [*called("once", (3, 1)), *called("twice", (3, 1)), *called("often", (1, 28))],
        [*called("two", (3, 2)), *called("twos", (1, 2)), *called("often", (1, 28))],
    ],
    ids=["nothing", "one", "often", "no chunks"],
)
def test_what_is_not_called_chunk_by_chunk_is_one_graph(works):
    [graph] = graphs_of(works)
    assert (graph.launches, graph.works) == (1, tuple(works))


@pytest.mark.slow
def test_the_graphs_of_a_model_have_all_its_calls():
    run = causal_run()
    found = plan_trace(run, find("wan2.1").production, DIRECT)
    assert [graph.launches for graph in found.graphs] == [1, 1, 19, 1]
    assert sum(layer.calls for layer in found.layers) == run.calls
    assert found.seconds == pytest.approx(sum(g.launches * g.ns for g in found.graphs) / 1e9)
    assert found.instructions == max(graph.instructions for graph in found.graphs)
    assert found.compile_s == pytest.approx(
        sum(0.29e-3 * g.instructions + 53 * g.regions for g in found.graphs)
    )


def test_each_norm_is_where_it_is_faster(monkeypatch):
    """At the end of one convolution of two; of the other, and by direct ones, apart."""
    shape = conv_shape((1, 96, 6, 96, 160), (96, 96, 3, 3, 3), padding=(0, 1, 1))
    epilogue = Epilogue(norm=NormEpilogue(1e-6, "silu"))
    large = TracedConv("large", shape, epilogue=epilogue)
    small = replace(large, module="small", shape=replace(shape, size=(3, 96, 160)))
    seen = replace(causal_run(), works=((large, 5), (small, 2)))
    monkeypatch.setattr(plans_module, "is_faster_fused", lambda problem, *_: problem.shape == shape)
    size = find("wan2.1").production
    found = plan_trace(seen, size, PlanOptions(cores=1))
    assert [layer.work.epilogue.norm for layer in found.layers] == [epilogue.norm, None]
    ((norm, calls),) = found.trace.operations
    assert (norm.shape, calls) == ((1, 96, 1, 96, 160), 2)
    assert found.operation_seconds > 0
    monkeypatch.undo()
    direct = plan_trace(seen, size, DIRECT)
    assert [layer.work.epilogue.norm for layer in direct.layers] == [None, None]
    assert sum(plan.calls for plan in direct.operations) == 7
