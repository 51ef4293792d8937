"""explain: every decision is named, and every time says what it is."""

import re

import pytest

import trnconv
from direct_plans import direct_plans
from nkisim.machine import CONSTANTS_VERSION, TRN2
from trnconv.algorithms.direct.plan import BY_COLUMN, BY_FRAME, BY_ROW, PePacking
from trnconv.errors import TrnconvError
from trnconv.geometry import conv_shape
from trnconv.planner.explain import explain
from trnconv.problem.limits import DEFAULT_BUDGET

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
        f"  time      {microseconds:.1f} us modelled by the cost model"
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
    assert PePacking(0, 96).in_words() == "channels 0..95; lines stacked by frames"
    stacked = PePacking(128, 64, rows=2, levels=(BY_FRAME, BY_ROW))
    assert stacked.in_words() == (
        "channels 128..191, 2 rows of outputs on M; lines stacked by frames, the rest by frames and"
        " rows"
    )
    rgb = PePacking(0, 3, 4, 5, 2, levels=(BY_ROW, BY_COLUMN))
    assert rgb.in_words() == (
        "channels 0..2, 4 frames x 5 rows x 2 columns of outputs on M; lines stacked by frames and"
        " rows, the rest by all taps"
    )
    tiled = PePacking(0, 32, rows=4, tile_columns=32, unit=(1, 1))
    assert tiled.in_words().endswith("lines stacked by frames, column tiles of 32")


def test_loops_and_streamed_weights_are_named():
    long = direct_plans(SHAPE, budget=700)
    assert long[0].plan.looped
    spans = long[0].plan.body_blocks
    assert f"program   a hardware loop of {spans} spans an iteration" in explain(long, 700)
    heavy = direct_plans(conv_shape((1, 1024, 6, 6), (2048, 1024, 3, 3)))
    assert heavy[0].plan.streamed
    streamed = f"weights streamed through {heavy[0].plan.streamed} slots"
    assert streamed in explain(heavy, DEFAULT_BUDGET)


def test_the_function_of_the_package_says_the_same():
    text = trnconv.explain((1, 96, 6, 48, 128), (96, 96, 3, 3, 3), padding=(0, 1, 1), cores=1)
    direct, fast = text.split("\n\n")
    assert direct == explain(direct_plans(SHAPE), DEFAULT_BUDGET)
    assert "too small" in fast
    other = trnconv.explain((1, 3, 64, 64), (8, 3, 3, 3), machine="trn3", dtype="float32", cores=1)
    assert "modelled by the cost model (trn3," in other
    assert other.splitlines()[0].endswith("float32")


def test_explain_shows_what_each_fast_algorithm_would_give():
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


def test_explain_takes_what_the_functions_take():
    grouped = trnconv.explain((2, 64, 28, 28), (96, 16, 3, 3), padding=1, groups=4, cores=1)
    assert grouped.startswith("64 -> 96 channels, 1x3x3 taps")
    up = trnconv.explain(
        (1, 8, 12, 20), (8, 16, 4, 4), stride=2, padding=1, transposed=True, cores=1
    )
    assert up.startswith("8 -> 16 channels, 1x2x2 phases of 1x2x2 taps, on 1 x 1x12x20")
    more = trnconv.explain(
        (8, 12, 20), (8, 4, 4, 4), stride=2, output_padding=1, groups=4, transposed=True, cores=1
    )
    assert more.startswith("8 -> 16 channels")
    sizes = (1, 8, 12, 20), (16, 8, 3, 3)
    modes = [trnconv.explain(*sizes, padding=1, padding_mode=mode) for mode in ("zeros", "reflect")]
    assert modes[0] != modes[1]
    assert "float16" in trnconv.explain(*sizes, dtype="float16")


def test_explain_of_two_cores_has_a_plan_for_each():
    sizes = (1, 64, 28, 28), (64, 64, 3, 3)
    text = trnconv.explain(*sizes, cores=2)
    assert trnconv.explain(*sizes) == text
    details, algorithms = text.split("\n\n")
    first, second, *_ = details.splitlines()
    assert first == "two cores (LNC2): core 0 has half of the output channels"
    assert second.startswith("core 0 of 2: 64 -> 64 channels, 1x3x3 taps")
    assert details.count("modelled by the cost model") == 2
    assert "lost" not in details
    assert "two cores" in algorithms
    alone, every = trnconv.explain(*sizes, cores=1).split("\n\n")
    assert algorithms.endswith(f"On one core:\n{alone}\n{every}")


def test_explain_says_what_cannot_be_halved():
    text = trnconv.explain((1, 8, 3), (1, 8, 3))
    assert text.startswith("two cores (LNC2): it cannot be halved: both cores compute all of it")
    assert "LNC2" not in trnconv.explain((1, 8, 3), (1, 8, 3), machine="trn1")


def test_explain_of_several_launches_lists_them():
    text = trnconv.explain((2, 1994, 9, 9), (2991, 2, 3, 3), padding=1, groups=997, cores=1)
    first, *lines = text.splitlines()
    assert first.startswith("2 launches, ")
    assert lines[0].startswith(
        "  1 x conv2d(input [2, 1932, 9, 9], weight [2898, 2, 3, 3], padding=1, groups=966): "
    )
    assert lines[1].startswith(
        "  1 x conv2d(input [2, 62, 9, 9], weight [93, 2, 3, 3], padding=1, groups=31): "
    )
    times = [float(line.rsplit(": ", 1)[1].split()[0]) for line in lines[:2]]
    assert float(first.split()[2]) == pytest.approx(sum(times), abs=0.11)
    assert lines[2].startswith("1932 -> 2898 channels in 23 blocks of groups")
    assert "and so on: 23 passes in all" in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"output_padding": 1}, "output_padding=1: of transposed"),
        ({"transposed": True, "padding": "same"}, "padding='same'.*takes numbers"),
        ({"transposed": True, "padding_mode": "reflect"}, "no mode"),
        ({"cores": 2, "machine": "trn1"}, "2 cores on trn1"),
        ({"groups": 3}, "3 groups"),
    ],
    ids=str,
)
def test_what_explain_refuses(options, words):
    with pytest.raises(TrnconvError, match=words):
        trnconv.explain((1, 8, 12, 20), (8, 8, 3, 3), **options)
