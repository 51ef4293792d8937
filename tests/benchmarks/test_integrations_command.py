"""Wan's decoder by two routings: `python -m benchmarks integrations`."""

import re

import pytest

pytest.importorskip("torch")

from benchmarks import integrations
from benchmarks.__main__ import main
from benchmarks.scatter_times import stored

pytestmark = [pytest.mark.slow, pytest.mark.diffusers]  # what benchmarks print: run by hand

CASE = "tiles of 256 x 256"


@pytest.fixture(scope="module")
def tiles():
    return integrations.chunks(*integrations.CASES[CASE])


def test_their_sites_of_a_tile_are_those_of_their_release(tiles):
    counts = {name: len(calls) for name, calls in tiles.items()}
    served = {name: sum(call.route.is_served for call in calls) for name, calls in tiles.items()}
    assert counts == {"first": 37, "steady": 39}  # two convolutions along time rest at first
    assert served == {"first": 3, "steady": 21}  # 3 of the first: behind upsampling
    left = integrations.left_over(tiles["steady"])
    assert len(left) == 39 - 21
    assert any("conv_out" in line for line in left)


def test_their_times_by_hand(tiles):
    """A site of the compiler: multiplications and additions at 20 TFLOP/s; of a kernel: halved."""
    known = stored()
    entry = tiles["steady"][1]  # conv_in: 16 -> 384 channels, 27 taps, 32 x 32
    assert entry.name == "decoder.conv_in"
    macs = 16 * 384 * 27 * 32 * 32
    assert integrations.their_ns(entry, known) == pytest.approx(2 * macs / 20e12 * 1e9)
    kernel = next(call for call in tiles["steady"] if call.route.kernel == "conv3d")
    assert integrations.their_ns(kernel, known) == integrations.baseline_ns(kernel.shape, known) / 2


def test_the_last_lines_are_ratios_of_the_table(capsys):
    assert main(["integrations", "--case", CASE, "--sites"]) == 0
    printed = capsys.readouterr().out
    assert "nothing was measured" in printed
    assert "decoder.conv_in: 16 -> 384 channels" in printed
    assert "whole frames" not in printed
    rows = re.findall(r"steady +(direct|bf16) +21/39 +39/39 +([\d.]+) +([\d.]+) +([\d.]+)", printed)
    assert [row[0] for row in rows] == ["direct", "bf16"]
    for accuracy, theirs, ours, ratio in rows:
        assert float(ratio) == pytest.approx(float(ours) / float(theirs), abs=1e-3)
        verdict = "met" if float(ratio) <= 0.6 else "MISSED"
        assert f"{verdict} {CASE}, {accuracy}, all sites: {ratio}, at most 0.6" in printed
