"""`python -m benchmarks fast`: what it prints, and the error study it holds transforms to."""

import pytest

from benchmarks.__main__ import main
from benchmarks.fast import LARGEST_BAR, RMS_BARS
from benchmarks.fast_errors import DECODER, WHITE, measure

pytestmark = pytest.mark.fast


def test_a_layer_beside_its_bar(capsys):
    asked = ["--layers", "c2", "--errors", "none", "--models", "none", "--switches"]
    assert main(["fast", *asked]) == 0
    printed = capsys.readouterr().out
    assert "whole sums" in printed
    assert "every time is modelled" in printed
    assert printed.splitlines()[-1] == "bars met 1/1"


@pytest.mark.parametrize("data", [DECODER, WHITE])
@pytest.mark.parametrize("channels", [96, 384])
@pytest.mark.parametrize("transform", RMS_BARS)
def test_errors_stay_within_their_bars(transform, channels, data):
    found = measure(transform, 0, channels, data)
    assert 1.0 <= found.rms <= RMS_BARS[transform]
    assert found.largest <= LARGEST_BAR
