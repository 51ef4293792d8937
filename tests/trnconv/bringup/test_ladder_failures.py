"""Every failure of the doubles: the ladder stops where it should, passes with the workaround."""

import pytest

from bringup_climbs import Stop, bench_with, stop_of
from neuron_failures import IN_KERNELS, IN_NO_KERNEL
from trnconv.bringup import stage1, stage2
from trnconv.bringup.ladder import NOTED, climb

pytestmark = pytest.mark.contact

CHECKS = (*stage1.checks(), *stage2.checks())


def named(failure):
    return failure.name


@pytest.mark.parametrize("failure", IN_KERNELS, ids=named)
def test_the_ladder_stops_at_the_check_and_names_the_workaround(failure, monkeypatch):
    found = stop_of(CHECKS, bench_with((failure.name,), (), monkeypatch))
    assert (found.check, found.workaround) == (failure.check, failure.workaround), found.words


@pytest.mark.parametrize("failure", IN_KERNELS, ids=named)
def test_with_the_workaround_every_kernel_is_right(failure, monkeypatch):
    bench = bench_with((failure.name,), (failure.workaround,), monkeypatch)
    assert stop_of(CHECKS, bench) == Stop(None, None)


@pytest.mark.parametrize("failure", IN_NO_KERNEL, ids=named)
def test_what_no_kernel_does_is_noted_and_every_kernel_is_right(failure, monkeypatch):
    climbed = list(climb(CHECKS, bench_with((failure.name,), (), monkeypatch)))
    assert not climbed[-1].stops, climbed[-1].finding.words
    (note,) = (one.finding for one in climbed if one.check.name == failure.check)
    assert (note.state, note.data["answer"]) == (NOTED, "no")


def test_kernels_split_partitions_with_their_workaround_only(monkeypatch):
    bench = bench_with(("partition-split",), ("split-partitions",), monkeypatch)
    found = stop_of(stage2.checks(), bench)
    assert "dma-split-partitions" in found.words


def test_without_failures_everything_is_climbed(monkeypatch):
    assert stop_of(CHECKS, bench_with((), (), monkeypatch)) == Stop(None, None)


def test_two_failures_are_found_one_after_the_other(monkeypatch):
    both = ("growing-bank", "unfenced-loop")
    workarounds = []
    while (found := stop_of(CHECKS, bench_with(both, workarounds, monkeypatch))).check is not None:
        workarounds.append(found.workaround)
    assert workarounds == ["no-growing-banks", "fence"]


def test_every_workaround_of_a_machine_is_asked_for_by_some_check():
    """But for those of the clock, which change times and plans: no value depends on them.

    Nor is one that lets kernels do more a remedy: notes say what would allow it.
    """
    from nkisim.machine_workarounds import TIMING, WORKAROUNDS

    values = {
        name: workaround for name, workaround in WORKAROUNDS.items() if workaround.of != TIMING
    }
    more = {name for name, workaround in values.items() if workaround.value is True}
    assert {check.workaround for check in CHECKS} >= set(values) - more
    noted = " ".join(check.asks for check in CHECKS if check.notes)
    assert all(name in noted for name in more)
