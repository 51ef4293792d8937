"""Stage 0 on doubles of the vendor's simulator and of its compile-only flow."""

import pytest

from bringup_climbs import Stop
from nkisim.machine import TRN2
from nkisim.machine_workarounds import with_workarounds
from toolchain_double import installed
from trnconv.bringup import stage0
from trnconv.bringup.ladder import GREEN, OFF, RED, Bench, climb
from trnconv.bringup.runner import SimulatedRunner
from trnconv.host.vendor import Vendor
from trnconv.host.workarounds import of_machine


def bench(vendor, *workarounds):
    machine = with_workarounds(TRN2, *of_machine(workarounds)) if of_machine(workarounds) else TRN2
    return Bench(machine, 2, SimulatedRunner(machine, 2), frozenset(workarounds), vendor=vendor)


def states(checks, vendor):
    return {one.check.name: one.finding.state for one in climb(checks, bench(vendor))}


def stop(checks, vendor, *workarounds):
    for one in climb(checks, bench(vendor, *workarounds)):
        if one.stops:
            return Stop(one.check.name, one.workaround, one.finding.words)
    return Stop(None, None)


FEW = (
    "simulate-copy",
    "simulate-c_in_3",
    "compile-matmul",
    "compile-pointwise",
    "birsim-matmul",
    "birsim-pointwise",
)
CHECKS = [check for check in stage0.checks() if check.name in FEW]
COMPILED = [check for check in stage0.checks() if not check.name.startswith("simulate-")]


def test_equal_simulators_are_green_and_so_is_what_compiles(monkeypatch):
    vendor, flow = installed(monkeypatch)
    assert states(CHECKS, vendor) == dict.fromkeys(FEW, GREEN)
    assert flow.compiles == ["matmul", "forward_on_two_cores", "matmul", "forward"]


def test_what_the_compiler_says_goes_to_the_file(monkeypatch):
    vendor, _ = installed(monkeypatch)
    check = next(check for check in CHECKS if check.name == "compile-matmul")
    (climbed,) = climb([check], bench(vendor))
    assert climbed.finding.data["compiler"]["total_time_ns"] == 1000
    assert climbed.finding.data["neff_bytes"] == len(b"neff")
    assert climbed.finding.data["instructions"] > 0


@pytest.mark.parametrize(
    ("failure", "off"),
    [
        ("no-flow", FEW[2:]),
        ("no-birsim", FEW[4:]),
        ("no-outputs", FEW[4:]),
    ],
)
def test_what_is_not_there_is_left_out(failure, off, monkeypatch):
    vendor, _ = installed(monkeypatch, (failure,))
    expected = {name: OFF if name in off else GREEN for name in FEW}
    assert states(CHECKS, vendor) == expected


def test_one_wrong_value_is_red(monkeypatch):
    vendor, _ = installed(monkeypatch, ("wrong-simulator",))
    assert states(CHECKS, vendor) == {"simulate-copy": RED}


def test_an_empty_neff_is_red(monkeypatch):
    vendor, _ = installed(monkeypatch, ("empty-neff",))
    assert stop(CHECKS, vendor).check == "compile-matmul"


def test_without_the_vendors_nki_there_is_nothing_to_ask():
    assert set(states(CHECKS, Vendor()).values()) == {OFF}


# What fails, the check of stage 0 that finds it without a device, and the workaround it names.
FAILURES = {
    "addresses": ("compile-sbuf-address", "placed-by-compiler"),
    "dma-transpose": ("compile-dma-transpose", "no-dma-transpose"),
    "loops": ("compile-static-loop", "no-loops"),
    "psum-in-loop": ("compile-psum-in-loop", "no-loops"),
    "growing-bank": ("birsim-growing-bank", "no-growing-banks"),
    "psum-in-place": ("birsim-psum-in-place", "no-psum-in-place"),
    "unfenced-loop": ("birsim-unfenced-loop", "fence"),
}


@pytest.mark.contact
@pytest.mark.parametrize("failure", FAILURES)
def test_a_compiler_that_refuses_names_the_workaround_and_then_compiles(failure, monkeypatch):
    check, workaround = FAILURES[failure]
    vendor, _ = installed(monkeypatch, (failure,))
    found = stop(COMPILED, vendor)
    assert (found.check, found.workaround) == (check, workaround), found.words
    assert stop(COMPILED, vendor, workaround) == Stop(None, None)


@pytest.mark.contact
def test_stage_0_is_climbed_whole(monkeypatch):
    vendor, flow = installed(monkeypatch)
    found = states(stage0.checks(), vendor)
    assert set(found.values()) == {GREEN}
    assert len(flow.compiles) == len(COMPILED)
