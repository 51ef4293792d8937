"""explain: every decision is named, and every time says what it is."""

import re

import pytest

import trnconv
from nkisim.machine import CONSTANTS_VERSION, TRN2
from trnconv.geometry import conv_shape
from trnconv.plan.choose import choose, request_for
from trnconv.plan.conv_plan import BY_COLUMN, BY_FRAME, BY_ROW, Pass
from trnconv.plan.explain import explain, pass_in_words

SHAPE = conv_shape((1, 96, 6, 48, 128), (96, 96, 3, 3, 3), padding=(0, 1, 1))


@pytest.fixture(scope="module")
def choice():
    return choose(request_for(SHAPE, TRN2, "bfloat16"))


@pytest.fixture(scope="module")
def lines(choice):
    return explain(choice).splitlines()


def test_the_problem_comes_first(lines):
    assert lines[0] == "96 -> 96 channels, 3x3x3 taps that meet the input, on 1 x 6x48x128 bfloat16"


def test_every_decision_is_named(lines, choice):
    plan = choice.taken.plan
    text = "\n".join(lines)
    assert f"blocks    {plan.frames} frames x {plan.rows} rows x {plan.columns} columns" in text
    for one in plan.passes:
        assert f"array     {pass_in_words(one)}" in text
    assert f"SBUF      {sum(plan.slots)} windows, {plan.out_buffers} output buffers" in text
    assert "weights all in SBUF" in text
    assert "program   unrolled" in text


def test_the_time_is_called_modelled_with_machine_constants_and_reading(lines, choice):
    (line,) = [line for line in lines if line.startswith("  time")]
    microseconds = choice.taken.cost.total_ns / 1e3
    assert line == (
        f"  time      {microseconds:.1f} us modelled in closed form"
        f" (trn2, constants {CONSTANTS_VERSION}, default reading)"
    )
    assert "measured" not in "\n".join(lines)


def test_costs_are_those_of_the_plan(lines, choice):
    cost = choice.taken.cost
    text = "\n".join(lines)
    assert f"bound     by {cost.bound}: tensor {cost.tensor_ns / 1e3:.1f}, DMA" in text
    room = TRN2.sbuf_usable_bytes_per_partition
    assert f"memory    {cost.sbuf_bytes} of {room} bytes a partition" in text
    assert f"{cost.instructions} static instructions (budget {choice.budget})" in text


def test_what_lost_is_slower_and_fills_the_array_another_way(lines, choice):
    first = lines.index("  lost") + 1
    assert 1 <= len(lines) - first <= 5
    for line in lines[first:]:
        assert re.match(r"    +[\d.]+ us \([+-][\d.]+ %\), \d+ MB, blocks \d+x\d+x\d+: chan", line)
    taken = "; ".join(pass_in_words(one) for one in choice.taken.plan.passes)
    assert not any(line.endswith(f": {taken}") for line in lines[first:])


def test_passes_in_words():
    assert pass_in_words(Pass(0, 96)) == "channels 0..95; lines stacked by frames"
    stacked = Pass(128, 64, rows=2, levels=(BY_FRAME, BY_ROW))
    assert pass_in_words(stacked) == (
        "channels 128..191, 2 rows of outputs on M; lines stacked by frames, the rest by frames and"
        " rows"
    )
    rgb = Pass(0, 3, 4, 5, 2, levels=(BY_ROW, BY_COLUMN))
    assert pass_in_words(rgb) == (
        "channels 0..2, 4 frames x 5 rows x 2 columns of outputs on M; lines stacked by frames and"
        " rows, the rest by all taps"
    )
    tiled = Pass(0, 32, rows=4, tile_columns=32, unit=(1, 1))
    assert pass_in_words(tiled).endswith("lines stacked by frames, column tiles of 32")


def test_loops_and_streamed_weights_are_named():
    long = choose(request_for(SHAPE, TRN2, "bfloat16"), budget=400)
    assert long.taken.plan.rolled
    blocks = long.taken.plan.body_blocks
    assert f"program   a hardware loop of {blocks} blocks a turn" in explain(long)
    heavy = choose(request_for(conv_shape((1, 1024, 6, 6), (2048, 1024, 3, 3)), TRN2, "bfloat16"))
    assert heavy.taken.plan.streamed
    assert f"weights streamed through {heavy.taken.plan.streamed} slots" in explain(heavy)


def test_the_function_of_the_package_says_the_same():
    text = trnconv.explain((1, 96, 6, 48, 128), (96, 96, 3, 3, 3), padding=(0, 1, 1))
    direct, fast = text.split("\n\n")
    assert direct == explain(choose(request_for(SHAPE, TRN2, "bfloat16")))
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
