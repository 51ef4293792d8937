"""Limits of tests grow on a slow machine, and never shrink."""

import pytest

import yardstick


@pytest.fixture
def fresh(monkeypatch):
    """A function: the yardstick as if its machine did the work in so many seconds."""

    def compare_with(seconds):
        yardstick.slowness.cache_clear()
        monkeypatch.setattr(yardstick, "QUIET_S", seconds)
        return yardstick.limit_s(10)

    yield compare_with
    yardstick.slowness.cache_clear()


def test_a_slow_machine_has_more_time(fresh):
    assert fresh(1e-6) > 1000


def test_a_fast_machine_has_as_much(fresh):
    assert fresh(1e6) == 10
