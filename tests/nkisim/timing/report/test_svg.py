"""The picture: well-formed, to scale, and no text on top of another."""

import xml.etree.ElementTree as ET
from itertools import combinations

import numpy as np
import pytest

import hand_built_timeline as by_hand
from nkisim.timing.report import svg_report
from nkisim.timing.report.axis import CUT_PX, Axis, round_step
from nkisim.timing.report.density import Span, shapes
from nkisim.timing.report.palette import colours

NAMESPACE = "{http://www.w3.org/2000/svg}"
CASES = {"pipeline": by_hand.pipeline, "looped": by_hand.looped, "many": lambda: by_hand.many(5000)}
LEFT_PX, RIGHT_PX = 132, 1104  # of the lanes
SEAM_PX = 0.6


def picture(timeline, name="kernel"):
    return ET.fromstring(svg_report(timeline, name))  # noqa: S314 (our own)


def words(root):
    return [element.text for element in root.iter(f"{NAMESPACE}text")]


def tooltips(root):
    """Tooltip of each block, and the block."""
    return {
        block.find(f"{NAMESPACE}title").text: block
        for block in root.iter(f"{NAMESPACE}rect")
        if block.find(f"{NAMESPACE}title") is not None
    }


@pytest.mark.parametrize("name", CASES)
def test_a_picture_says_that_it_is_modelled_and_how(name):
    root = picture(CASES[name](), name)
    assert "modelled, trn2, constants 1, default reading" in words(root)
    assert root.find(f"{NAMESPACE}title").text.startswith(f"{name}: modelled, trn2")
    assert float(root.get("width")) == 1200


def test_lanes_have_names_counts_and_shares():
    found = words(picture(by_hand.pipeline()))
    for lane in ("tensor", "vector", "scalar", "dma loads", "dma stores"):
        assert found.count(lane) == 2  # beside the lane, and in the list of idle times
    assert {"3 instructions", "1 instruction", "2 instructions"} <= set(found)
    shares = {"15.1 %", "6.8 %", "21.9 %", "41.1 %", "31.5 %"}  # of 7,300 ns
    assert shares <= set(found)
    assert found.count("busy") == 3
    assert found.count("in flight") == 2


def test_the_legend_counts_instructions():
    found = words(picture(by_hand.pipeline()))
    assert {"nc_matmul (3)", "dma_copy (3)", "tensor_copy (1)", "activation (1)"} <= set(found)
    assert "function table load (1)" in found


def test_blocks_are_to_scale():
    blocks = tooltips(picture(by_hand.pipeline()))
    px_per_ns = (RIGHT_PX - LEFT_PX) / 7300
    matmul = blocks["nc_matmul #2 (total): 400.0 ns"]
    assert float(matmul.get("x")) == pytest.approx(LEFT_PX + 3100 * px_per_ns, abs=0.01)
    assert float(matmul.get("width")) == pytest.approx(400 * px_per_ns - SEAM_PX, abs=0.01)
    wait = blocks["waiting for tensor_copy evict #4 (result): 790.0 ns"]
    assert float(wait.get("x")) == pytest.approx(LEFT_PX + 3910 * px_per_ns, abs=0.01)
    assert float(wait.get("width")) == pytest.approx(790 * px_per_ns, abs=0.01)
    copy = blocks["tensor_copy evict #4 (result): 500.0 ns"]
    assert wait.get("fill") == copy.get("fill") != matmul.get("fill")


def test_the_axis_has_round_numbers_and_a_unit():
    found = words(picture(by_hand.pipeline()))
    assert {"0", "1", "2", "3", "4", "5", "6", "7"} <= set(found)
    assert "time, us" in found


def test_extrapolated_iterations_are_cut_out_and_named():
    timeline = by_hand.looped()
    found = words(picture(timeline))
    assert {"7 iterations", "of 6.00 us", "extrapolated"} <= set(found)
    axis = Axis(timeline, 0.0, 1000.0)
    scale = (1000 - CUT_PX) / 18_000  # 60,000 ns less the 42,000 that are cut
    assert axis.x_px(17_000) == pytest.approx(17_000 * scale)
    assert axis.x_px(17_000 + 42_000) == pytest.approx(17_000 * scale + CUT_PX)
    assert axis.x_px(60_000) == pytest.approx(1000)


def test_an_axis_never_iterations_back():
    axis = Axis(by_hand.looped(), 100.0, 900.0)
    places = [axis.x_px(ns) for ns in range(-100, 60_200, 50)]
    assert places == sorted(places)
    assert (places[0], places[-1]) == (100, pytest.approx(900))


@pytest.mark.parametrize(
    ("least", "step"), [(0.03, 0.05), (1, 1), (1.1, 2), (2.1, 5), (7, 10), (12, 20), (0, 0)]
)
def test_steps_between_ticks_are_round(least, step):
    assert round_step(least) == pytest.approx(step)


def text_boxes(root):
    """(left, top, right, bottom) of every text, of characters 0.6 times as wide as high."""
    for element in root.iter(f"{NAMESPACE}text"):
        size = float(element.get("font-size"))
        x, y = float(element.get("x")), float(element.get("y"))
        width = 0.6 * size * len(element.text)
        shift = {"end": width, "middle": width / 2}.get(element.get("text-anchor"), 0.0)
        yield element.text, (x - shift, y - 0.75 * size, x - shift + width, y + 0.2 * size)


@pytest.mark.parametrize("name", CASES)
def test_no_text_lies_on_another_or_outside(name):
    root = picture(CASES[name](), name)
    boxes = list(text_boxes(root))
    height = float(root.get("height"))
    for text, (left, top, right, bottom) in boxes:
        assert 0 <= left < right <= 1200, text
        assert 0 <= top < bottom <= height, text
    for (one, a), (two, b) in combinations(boxes, 2):
        apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
        assert apart, (one, two)


def test_a_long_name_is_cut_to_the_width():
    root = picture(by_hand.pipeline(), "kernel" * 100)
    assert max(box[2] for _, box in text_boxes(root)) <= 1200


def test_many_short_instructions_become_columns_as_high_as_the_engine_is_busy():
    timeline = by_hand.many(5000, busy_ns=6.0, period_ns=10.0)  # five to a pixel, 60 % busy
    axis = Axis(timeline, 0.0, 1000.0)
    events = timeline.events
    spans = [Span(events.start_ns[r], events.busy_end_ns[r], "add", r) for r in range(5000)]
    wide, columns = shapes(spans, axis)
    assert wide == []
    assert {(one.low, one.high) for one in columns} == {(0.0, 0.6)}
    assert sum(one.right_px - one.left_px for one in columns) == 1000
    assert len(columns) == 1  # equal columns are joined


def test_ops_that_share_a_column_share_its_height():
    timeline = by_hand.many(5000)
    axis = Axis(timeline, 0.0, 1000.0)
    spans = []
    for number in range(5000):
        start = 10.0 * number
        spans.append(Span(start, start + 5, "most", number))
        spans.append(Span(start + 6, start + 9, "some", number))
    _, columns = shapes(spans, axis)
    assert {(one.low, one.high, one.op) for one in columns} == {
        (0.0, 0.5, "most"),
        (0.5, 0.8, "some"),
    }


def test_narrow_neighbours_that_touch_become_one_block():
    timeline = by_hand.many(5000, busy_ns=9.8, period_ns=10.0)
    axis = Axis(timeline, 0.0, 1000.0)
    events = timeline.events
    spans = [Span(events.start_ns[r], events.busy_end_ns[r], "add", r) for r in range(5000)]
    (block,), columns = shapes(spans, axis)
    assert columns == []
    assert (block.instructions, block.left_px) == (5000, 0.0)
    assert block.right_px == pytest.approx(1000, abs=0.01)
    assert block.ns == pytest.approx(5000 * 9.8)


def test_wide_neighbours_stay_apart():
    timeline = by_hand.many(10)
    axis = Axis(timeline, 0.0, 1000.0)
    wide, _ = shapes([Span(10.0 * n, 10.0 * n + 10, "add", n) for n in range(10)], axis)
    assert [block.instructions for block in wide] == [1] * 10


def test_a_long_kernel_makes_a_small_picture():
    assert len(svg_report(by_hand.many(20_000), "many")) < 50_000


# What the three kinds of cones leave of linear red, green and blue (Machado and others, 2009).
VISIONS = {
    "full": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "without red cones": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "without green cones": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
}


def seen(colour, vision):
    """Red, green and blue, 0..1, as somebody sees #rrggbb."""
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    mixed = np.clip(np.array(vision) @ linear, 0, 1)
    return np.where(mixed <= 0.0031308, 12.92 * mixed, 1.055 * mixed ** (1 / 2.4) - 0.055)


@pytest.mark.parametrize("vision", VISIONS)
def test_common_instructions_can_be_told_apart_with_any_colour_vision(vision):
    common = ("nc_matmul", "dma_copy", "activation", "tensor_copy", "tensor_tensor")
    shades = [seen(colour, VISIONS[vision]) for colour in colours(common).values()]
    for one, two in combinations(shades, 2):
        assert np.linalg.norm(one - two) > 0.2


def test_unknown_instructions_get_colours_of_their_own():
    chosen = colours(["nc_matmul", "op_a", "op_b", "op_c"])
    assert len(set(chosen.values())) == 4
    assert chosen["op_a"] == colours(["op_a"])["op_a"]
