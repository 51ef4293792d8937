"""Checks of the kernels between convolutions, in nkisim."""

import pytest

from nkisim.machine import find_machine
from trnconv.bringup.fused_op_layers import FUSED_OP_LAYERS, run
from trnconv.bringup.ladder import GREEN, OFF, RED, Bench
from trnconv.bringup.runner import SimulatedRunner


def bench(target, cores, runner=SimulatedRunner):
    machine = find_machine(target)
    return Bench(machine, cores, runner(machine, cores))


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("layer", FUSED_OP_LAYERS, ids=lambda layer: layer.name)
def test_a_kernel_is_right(layer, cores):
    assert run(layer, bench("trn2", cores)).state == GREEN


@pytest.mark.parametrize("layer", FUSED_OP_LAYERS, ids=lambda layer: layer.name)
def test_what_a_machine_does_not_take_is_off(layer):
    assert run(layer, bench("trn1", 1)).state == OFF


class WrongRunner(SimulatedRunner):
    """One element of what a kernel returns first is another."""

    def call(self, kernel, args, *, legalised=True):
        found, *others = super().call(kernel, args, legalised=legalised)
        changed = found.copy()
        changed.reshape(-1)[-1] += 1
        return (changed, *others)


@pytest.mark.parametrize("layer", FUSED_OP_LAYERS, ids=lambda layer: layer.name)
def test_a_wrong_element_is_red(layer):
    assert run(layer, bench("trn2", 1, WrongRunner)).state == RED
