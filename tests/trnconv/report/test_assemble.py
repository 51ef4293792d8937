"""From a layer or a model to its report: numbers that follow from each other do."""

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from nkisim.machine import TRN2, Reading
from nkisim.timing import schedule, schedule_launch
from trnconv.baseline import layer_ns
from trnconv.cases import find
from trnconv.geometry import conv_shape
from trnconv.model_plan import PlanOptions, Prices, plan_trace
from trnconv.models import Size
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.policy import ALWAYS_DIRECT
from trnconv.report import of_model
from trnconv.report.assemble import ReportOptions
from trnconv.report.of_layer import report_of_layer
from trnconv.report.of_model import report_of_model
from trnconv.report.page import page
from trnconv.report.schedules import time_layer
from trnconv.report.strips import PARTS, strips_of, window_of
from trnconv.runtime.pricing import price
from trnconv.traces import ModelTrace, Operation, TracedConv

CASE = find("image_2x8")
SILU = Operation("silu", (1, 96), "bfloat16", 36_000_000, 36_000_000, ("silu",), 1)
COPY = Operation("cat", (1, 96), "bfloat16", 18_000_000, 18_000_000, ("cat",), 1)
ASKED = ReportOptions(command="trnconv report image_2x8", date="2026-01-02")


@pytest.fixture(scope="module")
def problem():
    return ConvProblem(CASE.shape, TRN2, policy=ALWAYS_DIRECT)


@pytest.fixture(scope="module")
def report(problem):
    return report_of_layer(CASE.name, CASE.note, problem, ASKED, cores=1)


def test_a_layer_alone_is_all_of_the_time(report, problem):
    (row,) = report.layers
    priced = price(problem, cores=1)
    assert row.ns == row.total_ns == priced.ns == pytest.approx(1e9 * report.totals.seconds)
    assert row.share == 1
    assert (report.totals.calls, report.totals.static_instructions) == (1, priced.instructions)
    # 2 x 128 x 128 channels x 27 taps x 16 outputs, and the peak is 128 x 128 x 2.4 GHz x 2
    flops = 2 * 128 * 128 * 27 * 16
    assert row.tflops == pytest.approx(flops / priced.ns / 1e3)
    assert row.of_peak == pytest.approx(row.tflops / 78.6432)
    assert row.flop_per_byte == pytest.approx(flops / priced.hbm_bytes)


def test_its_timeline_and_readings_are_those_of_the_schedule(report, problem):
    timed = time_layer(problem, cores=1)
    (line,), (reading,) = report.timelines, report.sensitivity.readings
    assert line.ns == reading.default_ns == timed.ns()
    assert reading.optimistic_ns == timed.ns(Reading.optimistic) < reading.default_ns
    assert reading.pessimistic_ns == timed.ns(Reading.pessimistic) > reading.default_ns
    assert line.psum_peak_banks == timed.longest.run.memory.psum_peak_banks
    shares = {strip.lane: strip.share for strip in line.strips}
    assert shares["tensor"] == pytest.approx(timed.busy_shares()["tensor"])


def test_an_effect_is_what_the_schedule_says_with_one_number_changed(report, problem):
    timed = time_layer(problem, (Reading.default,), cores=1)
    run = timed.longest.run
    slow = replace(TRN2, timing=replace(TRN2.timing, dma_start_ns=1500.0))
    expected = schedule(run.trace, slow, Reading.default).makespan_ns / timed.ns() - 1
    found = {one.name: one for one in report.sensitivity.effects}
    assert expected > 0
    assert found["dma_start_ns"].pessimistic_change == pytest.approx(expected)
    assert "sendrecv_ns" in report.sensitivity.without_effect
    every = {*found, *report.sensitivity.without_effect}
    assert every == set(TRN2.timing.assumptions())
    sizes = [
        max(abs(one.optimistic_change), abs(one.pessimistic_change))
        for one in report.sensitivity.effects
    ]
    assert sizes == sorted(sizes, reverse=True)


def test_on_two_cores_times_peaks_and_the_baseline_are_those_of_both(problem):
    both = report_of_layer(CASE.name, CASE.note, problem, ASKED)
    assert both.machine.cores == 2
    assert both.machine.peak_tflops == pytest.approx(2 * 78.6432)
    (row,), (line,), (reading,) = both.layers, both.timelines, both.sensitivity.readings
    assert row.ns == price(problem, cores=2).ns
    assert row.of_peak == pytest.approx(row.tflops / (2 * 78.6432))
    timed = time_layer(problem, cores=2)
    assert line.ns == reading.default_ns == timed.ns() == max(line.ends_ns)
    assert line.ends_ns[line.core] == line.ns
    slow = replace(TRN2, timing=replace(TRN2.timing, dma_start_ns=1500.0))
    lines = schedule_launch(timed.longest.run.traces, slow, Reading.default)
    expected = max(one.makespan_ns for one in lines) / timed.ns() - 1
    found = {one.name: one for one in both.sensitivity.effects}
    assert found["dma_start_ns"].pessimistic_change == pytest.approx(expected)
    text = "".join(ET.fromstring(page(both)).itertext())  # noqa: S314 (our own)
    assert "on two cores (LNC2) of trn2" in text
    assert f"Core {line.core} of two, which ends last" in text


@pytest.mark.parametrize("cores", [1, 2])
def test_the_baseline_is_on_as_many_cores(cores):
    shape = find("k3").shape
    asked = replace(ASKED, heaviest=0)
    made = report_of_layer("k3", "", ConvProblem(shape, TRN2), asked, cores)
    assert made.totals.baseline_seconds == pytest.approx(layer_ns(shape) / cores / 1e9)
    assert ("on two cores it takes half" in made.contenders[-1].note) == (cores == 2)


def test_budgets_have_the_limits_of_the_machine(report):
    budgets = {one.name: one for one in report.budgets}
    assert budgets["Instructions of one graph"].limit == 5_000_000
    assert budgets["SBUF of a partition, layer 1"].limit == 212_984
    assert budgets["PSUM, layer 1"].limit == 8
    assert all(0 < one.used <= one.limit for one in report.budgets)


def test_the_real_report_has_a_page(report):
    ET.fromstring(page(report))  # noqa: S314 (our own)


def test_nothing_is_scheduled_if_nothing_is_asked_for(problem):
    quick = report_of_layer("x", "", problem, replace(ASKED, heaviest=0))
    assert quick.timelines == quick.sensitivity.readings == quick.sensitivity.effects == ()
    ET.fromstring(page(quick))  # noqa: S314 (our own)


IN_ITERATIONS = conv_shape((1, 64, 1, 800, 64), (64, 64, 1, 3, 3), padding=(0, 1, 1))


@pytest.mark.parametrize(
    ("shape", "budget", "loops"), [(CASE.shape, 2000, False), (IN_ITERATIONS, 120, True)]
)
def test_strips_are_as_busy_as_their_engines(shape, budget, loops):
    asked = ConvProblem(shape, TRN2, policy=ALWAYS_DIRECT, budget=budget)
    line = time_layer(asked, (Reading.default,), cores=1).longest.timelines[Reading.default]
    assert bool(line.elisions) == loops
    window = window_of(line)
    assert 0 <= window[0] < window[1] <= line.makespan_ns
    # Levels are rounded to three digits. Iterations overlap where repeated ones begin and end, and
    # no part is more than busy: what is lost there is less than an iteration.
    iteration = sum(one.ns_per_iteration for one in line.elisions) / line.makespan_ns
    for strip in strips_of(line, window):
        assert sum(strip.levels) / PARTS == pytest.approx(strip.share, abs=0.0005 + iteration)
        assert len(strip.levels) == PARTS
        for block in strip.blocks:
            assert window[0] - 0.1 <= block.begin_ns < block.end_ns <= window[1] + 0.1


def traced():
    """Two modules with equal convolutions, one that is cheaper than asked, and a small one."""
    equal = conv_shape((1, 96, 3, 8, 32), (96, 96, 3, 3, 3), padding=(0, 1, 1))
    doubled = conv_shape(
        (1, 96, 1, 8, 16), (96, 96, 1, 3, 3), padding=(0, 1, 1), upsample=(1, 2, 2)
    )
    asked = conv_shape((1, 96, 1, 16, 32), (96, 96, 1, 3, 3), padding=(0, 1, 1))
    small = conv_shape((1, 16, 1, 8, 32), (16, 16, 1, 1, 1))
    return ModelTrace(
        model="wan2.1",
        phase="decode",
        frames=9,
        height=64,
        width=96,
        works=(
            (TracedConv("a.conv", equal), 3),
            (TracedConv("b.conv", equal), 4),
            (TracedConv("up.conv", doubled, instead_of=asked), 2),
            (TracedConv("in.conv", small), 1),
        ),
        moved=(),
        left_to_torch=(),
        patched=4,
        peak_bytes=10**9,
        largest_bytes=10**8,
        largest_shape=(1, 96, 3, 8, 32),
        weight_bytes=5 * 10**8,
        source="made up",
        operations=((SILU, 5),),
        operations_unfused=((SILU, 5),),
        operations_as_is=((SILU, 5), (COPY, 2)),
    )


@pytest.fixture
def model_report(monkeypatch):
    def planned(entry, size, phase, options, prices):
        return plan_trace(traced(), size, options, prices)

    monkeypatch.setattr(of_model, "model_plan", planned)
    asked = replace(ASKED, heaviest=1, effects=False)
    size = Size("64x96x9", 9, 64, 96)
    monkeypatch.setattr(of_model, "size_of", lambda *_: size)
    return report_of_model("wan2.1", "64x96x9", "decode", PlanOptions(), asked, Prices())


def test_equal_convolutions_of_a_model_are_one_layer(model_report):
    rows = {row.modules: row for row in model_report.layers}
    assert set(rows) == {("a.conv", "b.conv"), ("up.conv",), ("in.conv",)}
    assert rows["a.conv", "b.conv"].calls == 7
    assert rows["a.conv", "b.conv"].number == 1
    assert sum(row.share for row in model_report.layers) == pytest.approx(1)
    total = sum(row.calls * row.ns for row in model_report.layers)
    assert model_report.totals.seconds == pytest.approx(total / 1e9)
    # the model asked for a convolution of 16 x 32 with nine taps
    assert rows["up.conv",].multiply_adds == 96 * 96 * 9 * 16 * 32


def test_a_model_has_memory_and_says_what_is_left_out(model_report):
    budgets = {one.name: one for one in model_report.budgets}
    alone, shared = budgets["HBM, one launch at work"], budgets["HBM, all cores at work"]
    assert alone.used == shared.used == 1.5e9
    assert alone.limit == 96 * 2**30 == 4 * shared.limit  # a chip has four pairs of cores
    assert any("Launch overhead" in line for line in model_report.left_out)
    assert any("Norms" in line for line in model_report.modelled)
    assert model_report.totals.baseline_seconds is None
    assert [one.is_subject for one in model_report.contenders] == [True, False]


def test_a_model_has_what_is_no_convolution(model_report):
    (silu,) = model_report.others
    assert (silu.kind, silu.calls, silu.bound) == ("silu", 5, "hbm")
    totals = model_report.totals
    spent = 5 * 72e6 / 720e9  # bytes, and what the HBM of two cores gives in a second
    assert silu.seconds == pytest.approx(spent)
    assert totals.whole_seconds == pytest.approx(totals.seconds + spent)
    assert silu.share == pytest.approx(spent / totals.whole_seconds)
    assert next(one for one in model_report.contenders if one.is_subject).seconds == (
        totals.whole_seconds
    )
    assert "silu" in page(model_report)
