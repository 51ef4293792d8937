"""Every failure of the doubles: the ladder stops where it should, and passes with the switch."""

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
def test_the_ladder_stops_at_the_check_and_names_the_switch(failure, monkeypatch):
    found = stop_of(CHECKS, bench_with((failure.name,), (), monkeypatch))
    assert (found.check, found.switch) == (failure.check, failure.switch), found.words


@pytest.mark.parametrize("failure", IN_KERNELS, ids=named)
def test_with_the_switch_every_kernel_is_right(failure, monkeypatch):
    bench = bench_with((failure.name,), (failure.switch,), monkeypatch)
    assert stop_of(CHECKS, bench) == Stop(None, None)


@pytest.mark.parametrize("failure", IN_NO_KERNEL, ids=named)
def test_what_no_kernel_does_is_noted_and_every_kernel_is_right(failure, monkeypatch):
    climbed = list(climb(CHECKS, bench_with((failure.name,), (), monkeypatch)))
    assert not climbed[-1].stops, climbed[-1].finding.words
    (note,) = (one.finding for one in climbed if one.check.name == failure.check)
    assert (note.state, note.data["answer"]) == (NOTED, "no")


def test_kernels_split_partitions_with_their_switch_only(monkeypatch):
    bench = bench_with(("partition-split",), ("split-partitions",), monkeypatch)
    found = stop_of(stage2.checks(), bench)
    assert "dma-split-partitions" in found.words


def test_without_failures_everything_is_climbed(monkeypatch):
    assert stop_of(CHECKS, bench_with((), (), monkeypatch)) == Stop(None, None)


def test_two_failures_are_found_one_after_the_other(monkeypatch):
    both = ("growing-bank", "unfenced-loop")
    switches = []
    while (found := stop_of(CHECKS, bench_with(both, switches, monkeypatch))).check is not None:
        switches.append(found.switch)
    assert switches == ["no-growing-banks", "fence"]


def test_every_switch_of_a_machine_is_asked_for_by_some_check():
    """But for those of the clock, which change times and plans: no value depends on them.

    Nor is one that lets kernels do more a remedy: notes say what would allow it.
    """
    from nkisim.machine_switches import SWITCHES, TIMING

    values = {name: switch for name, switch in SWITCHES.items() if switch.of != TIMING}
    more = {name for name, switch in values.items() if switch.value is True}
    assert {check.switch for check in CHECKS} >= set(values) - more
    noted = " ".join(check.asks for check in CHECKS if check.notes)
    assert all(name in noted for name in more)
