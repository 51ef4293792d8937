"""Whole models planned without torch: from what was observed, within a graph's instructions."""

import json
from dataclasses import dataclass
from importlib import resources

import pytest

from nkisim.machine import TRN2
from trnconv.ask.policy import ALWAYS_DIRECT
from trnconv.errors import ShapeError, UnsupportedError
from trnconv.model_plan import (
    PlanOptions,
    Prices,
    model_plan,
    observation,
    plan_observed,
    planned_sizes,
)
from trnconv.model_plan import observing as observing_module
from trnconv.models import Size, find, models
from trnconv.models.sizes import size_of
from trnconv.observed import shipped, shipped_text
from trnconv.observed.shipped import file_name, observation_of
from trnconv.runtime.graph import GRAPH_INSTRUCTIONS, price_graph
from trnconv.runtime.pricing import price

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
def test_every_size_of_the_registry_is_observed(entry, size, phase):
    seen = shipped(entry, size, phase)
    assert (seen.model, seen.phase) == (entry.name, phase)
    assert (seen.frames, seen.height, seen.width) == (size.frames, size.height, size.width)
    assert seen.works
    assert seen.peak_bytes >= seen.largest_bytes > 0


def test_there_is_no_file_that_nobody_reads():
    folder = resources.files("trnconv.observed") / "data"
    names = {one.name for one in folder.iterdir()}
    assert names == {file_name(*job) for job in JOBS}


def test_a_file_is_what_its_observation_writes():
    entry = find("sdxl")
    name = file_name(entry, entry.production, "decode")
    text = (resources.files("trnconv.observed") / "data" / name).read_text(encoding="utf-8")
    seen = observation_of(json.loads(text))
    assert shipped_text(seen) == text


@pytest.fixture(scope="module")
def plan():
    return model_plan("sdxl", "1024x1024", "decode", DIRECT)


def test_totals_are_those_of_every_single_call(plan):
    prices = {}
    total_ns = instructions = hbm_bytes = macs = 0
    for work, calls in plan.observation.works:
        key = (work.shape, work.end)
        prices[key] = prices.get(key) or price(work.question(TRN2, policy=ALWAYS_DIRECT))
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
    assert len(modules) == len(plan.observation.works) > len(plan.layers)
    assert sum(layer.calls for layer in plan.layers) == plan.observation.calls == plan.calls
    assert len({layer.work.question(TRN2) for layer in plan.layers}) == len(plan.layers)


def test_the_heaviest_come_first(plan):
    times = [layer.ns for layer in plan.heaviest()]
    assert times == sorted(times, reverse=True)
    assert plan.heaviest(2) == plan.heaviest()[:2]


def test_a_plan_says_where_its_times_come_from(plan):
    assert plan.label.startswith("modelled, trn2, constants ")
    assert plan.label.endswith(", default reading, two cores (LNC2)")


def test_prices_are_not_asked_twice(plan):
    asked = []
    known = Prices(watch=asked.append)
    plan_observed(plan.observation, plan.size, DIRECT, known)
    first = len(asked)
    plan_observed(plan.observation, plan.size, DIRECT, known)
    assert len(asked) == first == len(plan.layers)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "720p81"),
        ("480p81", "480p81"),
        ("720x1280x81", "720p81"),
        ("64x96x9", "64x96x9"),
        ("64x96", "64x96"),
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
    monkeypatch.setattr(observing_module, "find_spec", lambda _name: None)
    with pytest.raises(UnsupportedError) as refusal:
        observation(find("sdxl"), Size("small", 1, 64, 64), "decode")
    for words in (
        "64x64x1",
        "torch and diffusers",
        "pip install 'trnconv[diffusers]'",
        "1024x1024x1",
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


def asking(table):
    def ask(budget):
        return next(one for one in table if one.instructions <= budget)

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
