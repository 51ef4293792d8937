"""Stage 0: the vendor's simulator against nkisim, on a double of it."""

import nkisim
from bringup_climbs import vendor_of
from nkisim.machine import TRN2
from trnconv.bringup import stage0
from trnconv.bringup.ladder import GREEN, OFF, RED, Bench, climb
from trnconv.bringup.runner import SimulatedRunner
from trnconv.host.vendor import Vendor


def bench(vendor):
    return Bench(TRN2, 2, SimulatedRunner(TRN2, 2), vendor=vendor)


def simulating(spoil=False):
    """nki whose simulator is nkisim, or one that is wrong in one value."""
    vendor = vendor_of((), 2)

    def simulate(kernel):
        def call(*args):
            done = nkisim.run(nkisim.Kernel(kernel.func)[2], *args, target=TRN2, lnc=2).outputs
            if spoil:
                done = done.copy()
                done.reshape(-1)[0] += 1
            return done

        return call

    vendor.nki.simulate = simulate
    return vendor


def states(rungs, vendor):
    return {one.rung.name: one.finding.state for one in climb(rungs, bench(vendor))}


RUNGS = [
    rung
    for rung in stage0.rungs()
    if rung.name in ("simulate-copy", "simulate-matmul", "simulate-c_in_3", "compile-pointwise")
]


def test_equal_simulators_are_green_and_nothing_is_compiled_without_a_compiler():
    assert states(RUNGS, simulating()) == {
        "simulate-copy": GREEN,
        "simulate-matmul": GREEN,
        "simulate-c_in_3": GREEN,
        "compile-pointwise": OFF,
    }


def test_one_wrong_value_is_red():
    assert states(RUNGS, simulating(spoil=True)) == {"simulate-copy": RED}


def test_without_the_vendors_nki_there_is_nothing_to_ask():
    assert set(states(RUNGS, Vendor()).values()) == {OFF}
