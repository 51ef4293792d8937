"""explain: every decision is named, and every time says what it is."""

import re

import pytest

import trnconv
from direct_plans import direct_plans
from nkisim.machine import CONSTANTS_VERSION, TRN2
from trnconv.ask.limits import DEFAULT_BUDGET
from trnconv.forms.direct.plan import BY_COLUMN, BY_FRAME, BY_ROW, Pass
from trnconv.geometry import conv_shape
from trnconv.planner.explain import explain

SHAPE = conv_shape((1, 96, 6, 48, 128), (96, 96, 3, 3, 3), padding=(0, 1, 1))


@pytest.fixture(scope="module")
def plans():
    return direct_plans(SHAPE)


@pytest.fixture(scope="module")
def lines(plans):
    return explain(plans, DEFAULT_BUDGET).splitlines()


def test_the_problem_comes_first(lines):
    assert lines[0] == "96 -> 96 channels, 3x3x3 taps that meet the input, on 1 x 6x48x128 bfloat16"


def test_every_decision_is_named(lines, plans):
    plan = plans[0].plan
    text = "\n".join(lines)
    assert f"blocks    {plan.frames} frames x {plan.rows} rows x {plan.columns} columns" in text
    for one in plan.passes:
        assert f"array     {one.in_words()}" in text
    assert f"SBUF      {sum(plan.slots)} windows, {plan.out_buffers} output buffers" in text
    assert "weights all in SBUF" in text
    assert "program   unrolled" in text


def test_the_time_is_called_modelled_with_machine_constants_and_reading(lines, plans):
    (line,) = [line for line in lines if line.startswith("  time")]
    microseconds = plans[0].cost.total_ns / 1e3
    assert line == (
        f"  time      {microseconds:.1f} us modelled in closed form"
        f" (trn2, constants {CONSTANTS_VERSION}, default reading)"
    )
    assert "measured" not in "\n".join(lines)


def test_costs_are_those_of_the_plan(lines, plans):
    cost = plans[0].cost
    text = "\n".join(lines)
    assert f"bound     by {cost.bound}: tensor {cost.busy_ns('tensor') / 1e3:.1f}, DMA" in text
    room = TRN2.sbuf_usable_bytes_per_partition
    assert f"memory    {cost.sbuf_bytes} of {room} bytes a partition" in text
    assert f"{cost.instructions} static instructions (budget {DEFAULT_BUDGET})" in text


def test_what_lost_is_slower_and_fills_the_array_another_way(lines, plans):
    first = lines.index("  lost") + 1
    assert 1 <= len(lines) - first <= 5
    for line in lines[first:]:
        assert re.match(r"    +[\d.]+ us \([+-][\d.]+ %\), \d+ MB, blocks \d+x\d+x\d+: chan", line)
    taken = "; ".join(one.in_words() for one in plans[0].plan.passes)
    assert not any(line.endswith(f": {taken}") for line in lines[first:])


def test_passes_in_words():
    assert Pass(0, 96).in_words() == "channels 0..95; lines stacked by frames"
    stacked = Pass(128, 64, rows=2, levels=(BY_FRAME, BY_ROW))
    assert stacked.in_words() == (
        "channels 128..191, 2 rows of outputs on M; lines stacked by frames, the rest by frames and"
        " rows"
    )
    rgb = Pass(0, 3, 4, 5, 2, levels=(BY_ROW, BY_COLUMN))
    assert rgb.in_words() == (
        "channels 0..2, 4 frames x 5 rows x 2 columns of outputs on M; lines stacked by frames and"
        " rows, the rest by all taps"
    )
    tiled = Pass(0, 32, rows=4, tile_columns=32, unit=(1, 1))
    assert tiled.in_words().endswith("lines stacked by frames, column tiles of 32")


def test_loops_and_streamed_weights_are_named():
    long = direct_plans(SHAPE, budget=400)
    assert long[0].plan.rolled
    blocks = long[0].plan.body_blocks
    assert f"program   a hardware loop of {blocks} blocks a turn" in explain(long, 400)
    heavy = direct_plans(conv_shape((1, 1024, 6, 6), (2048, 1024, 3, 3)))
    assert heavy[0].plan.streamed
    streamed = f"weights streamed through {heavy[0].plan.streamed} slots"
    assert streamed in explain(heavy, DEFAULT_BUDGET)


def test_the_function_of_the_package_says_the_same():
    text = trnconv.explain((1, 96, 6, 48, 128), (96, 96, 3, 3, 3), padding=(0, 1, 1))
    direct, fast = text.split("\n\n")
    assert direct == explain(direct_plans(SHAPE), DEFAULT_BUDGET)
    assert "too small" in fast
    other = trnconv.explain((1, 3, 64, 64), (8, 3, 3, 3), target="trn3", dtype="float32")
    assert "modelled in closed form (trn3," in other
    assert other.splitlines()[0].endswith("float32")


def test_explain_shows_what_each_fast_form_would_give():
    sizes = (1, 384, 3, 90, 160), (384, 384, 3, 3, 3)
    texts = {
        accuracy: trnconv.explain(*sizes, padding=(0, 1, 1), accuracy=accuracy)
        for accuracy in ("direct", "bf16", "fast")
    }
    taken = {
        accuracy: [line for line in text.splitlines() if line.startswith("  taken")]
        for accuracy, text in texts.items()
    }
    assert "was asked for directly" in texts["direct"]
    assert "F(4,3): expected error 1.163x" in texts["bf16"]
    assert [len(lines) for lines in taken.values()] == [0, 1, 1]
    assert "F(2,3)" in taken["bf16"][0]
    assert "F(4,3)" in taken["fast"][0]
