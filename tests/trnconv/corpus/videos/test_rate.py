"""Frame rates: a frame is shown until the next one's time."""

from fractions import Fraction

import pytest

from trnconv.corpus.videos.rate import at_rate


def frames(fps, count, start=0.0):
    return [(start + number / fps, number) for number in range(count)]


@pytest.mark.parametrize(
    ("source", "count", "asked", "shown"),
    [
        (16, 5, 16, [0, 1, 2, 3, 4]),
        (32, 9, 16, [0, 2, 4, 6, 8]),
        (32, 10, 16, [0, 2, 4, 6, 8]),
        (8, 3, 16, [0, 0, 1, 1, 2]),
        (24, 7, 16, [0, 1, 3, 4, 6]),
    ],
)
def test_the_frame_shown_at_each_tick_is_taken(source, count, asked, shown):
    assert list(at_rate(frames(source, count), asked)) == shown
    assert list(at_rate(frames(source, count, start=2.5), asked)) == shown


def test_uneven_times_are_honoured():
    assert list(at_rate([(0, "a"), (0.9, "b"), (1.1, "c"), (3, "d")], 1)) == ["a", "b", "c", "d"]


def test_nothing_and_one_frame():
    assert list(at_rate([], 16)) == []
    assert list(at_rate([(7.0, "only")], 16)) == ["only"]


@pytest.mark.parametrize("source", [24000 / 1001, 30000 / 1001, 50])
def test_rounded_timestamps_lose_no_frame(source):
    """Against exact arithmetic on fractions, with timestamps in whole microseconds."""
    rounded = [(round(number / source, 6), number) for number in range(300)]
    ticks = [Fraction(tick, 16) for tick in range(int(299 / source * 16) + 1)]
    exact = [max(n for n in range(300) if Fraction(n) / Fraction(source) <= tick) for tick in ticks]
    assert list(at_rate(rounded, 16)) == exact
