"""`python -m benchmarks fast`: what it prints, and the error study it holds transforms to."""

from math import inf

import pytest

from benchmarks.__main__ import main
from benchmarks.fast_errors import (
    DECODER,
    DIFFERENCES,
    F23,
    F43,
    LARGEST_BARS,
    PHASES,
    RMS_BARS,
    WHITE,
    measure,
    measure_pairs,
    measure_upsampled,
    pairs_of,
)

pytestmark = pytest.mark.fast


def by_frames(transform, channels, data):
    return measure(transform, 0, channels, data)


MEASURES = {
    DIFFERENCES: measure_upsampled,
    pairs_of(F23): lambda _, *asked: measure_pairs(F23, *asked),
    pairs_of(F43): lambda _, *asked: measure_pairs(F43, *asked),
}


def test_a_layer_beside_its_bar(capsys):
    asked = ["--layers", "c2", "--errors", "none", "--models", "none", "--workarounds"]
    assert main(["fast", *asked]) == 0
    printed = capsys.readouterr().out
    assert "whole sums" in printed
    assert "every time is modelled" in printed
    assert printed.splitlines()[-1] == "bars met 1/1"


@pytest.mark.parametrize("data", [DECODER, WHITE])
@pytest.mark.parametrize("channels", [96, 384])
@pytest.mark.parametrize("transform", RMS_BARS)
def test_errors_stay_within_their_bars(transform, channels, data):
    found = MEASURES.get(transform, by_frames)(transform, channels, data)
    assert 1.0 <= found.rms <= RMS_BARS[transform]
    assert found.largest <= LARGEST_BARS.get(transform, inf)


def test_phases_have_the_error_of_merged_taps_that_are_rounded():
    """As large as that of the output's own rounding, and independent: the root of two."""
    assert measure_upsampled(PHASES, 96, WHITE).rms == pytest.approx(2**0.5, rel=0.02)


def test_a_layer_on_trn3_has_no_bar(capsys):
    asked = ["--layers", "c2", "--errors", "none", "--models", "none", "--machine", "trn3"]
    assert main(["fast", *asked]) == 0
    printed = capsys.readouterr().out
    assert "every time is modelled, trn3" in printed
    assert printed.splitlines()[-1] == "bars met 0/0"


@pytest.mark.parametrize("others", [["--workarounds", "--models", "none"], [], ["--cores", "2"]])
def test_what_is_of_trn2_is_refused_for_trn3(others, capsys):
    assert main(["fast", "--layers", "none", "--errors", "none", "--machine", "trn3", *others]) == 2
    assert "of trn2" in capsys.readouterr().err
