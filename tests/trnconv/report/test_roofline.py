"""The roofline: dots where their numbers say, the roof where the machine's do."""

import re
from math import log10
from xml.etree import ElementTree as ET

import pytest

from report_examples import example, layer
from trnconv.report.numbers import amount, change, duration, percent, significant, times
from trnconv.report.roofline import PixelBox, Scale, overlap, roofline


def picture(**others):
    return ET.fromstring(roofline(example(**others)))  # noqa: S314 (our own)


def dots(svg):
    return list(svg.iter("circle"))


def test_every_layer_is_a_dot_whose_area_is_its_share():
    found = dots(picture())
    assert len(found) == 3
    shares = [one.share for one in example().layers]
    areas = [float(one.get("r")) ** 2 for one in found]
    assert areas[1] / areas[0] == pytest.approx(shares[1] / shares[0], rel=0.01)
    about = [one.find("title").text for one in found]
    assert about[0].startswith("1. 96")
    assert "60.0\u00a0% of the time, bound by tensor, direct" in about[0]


def test_dots_lie_on_logarithmic_axes():
    rows = tuple(
        layer(n, 8, 8, 1e5, 1, flop_per_byte=10.0**n, tflops=10.0 ** (n - 1)) for n in (1, 2, 3)
    )
    first, second, third = dots(picture(layers=rows))
    steps = [
        float(two.get("cx")) - float(one.get("cx"))
        for one, two in ((first, second), (second, third))
    ]
    assert steps[0] == pytest.approx(steps[1], abs=0.1)
    assert steps[0] > 0
    heights = [float(one.get("cy")) for one in (first, second, third)]
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.1)
    assert heights[0] > heights[2]


def test_a_layer_at_the_ridge_touches_the_corner_of_the_roof():
    ridge = 1e3 * 78.6 / 368
    svg = picture(layers=(layer(1, 8, 8, 1e6, 1, flop_per_byte=ridge, tflops=78.6),))
    roof = next(one for one in svg.iter("path") if one.get("class") == "roof")
    corner = [float(number) for number in re.findall(r"[\d.]+", roof.get("d"))][2:4]
    (dot,) = dots(svg)
    assert corner == pytest.approx([float(dot.get("cx")), float(dot.get("cy"))], abs=0.1)


def test_a_scale_is_logarithmic():
    scale = Scale(1, 1000, 0, 300)
    assert [scale.px(10.0**n) for n in range(4)] == pytest.approx([0, 100, 200, 300])
    assert scale.ticks() == [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
    assert log10(scale.high) == 3


def test_boxes_overlap():
    assert overlap(PixelBox(0, 0, 2, 2), PixelBox(1, 1, 3, 3))
    assert not overlap(PixelBox(0, 0, 2, 2), PixelBox(3, 0, 4, 2))
    assert not overlap(PixelBox(0, 0, 2, 2), PixelBox(0, 3, 2, 4))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (significant(9.999), "10.0"),
        (significant(0.0644), "0.0644"),
        (significant(1930.4), "1,930"),
        (significant(0), "0"),
        (duration(0.0288), "28.8\u00a0ms"),
        (duration(0.9996), "1,000\u00a0ms"),
        (duration(3e-10), "0.300\u00a0ns"),
        (amount(4_390_000), "4.39\u00a0M"),
        (amount(1.44e9, "B"), "1.44\u00a0GB"),
        (amount(7), "7.00"),
        (percent(0.7149, 1), "71.5\u00a0%"),
        (change(-0.012), "\u22121.2\u00a0%"),
        (change(0.0), "\u00b10.0\u00a0%"),
        (times(1.561), "1.56\u2009\u00d7"),
    ],
)
def test_numbers_are_written_with_three_digits(written, expected):
    assert written == expected
