"""Machines are sent to other processes and copied, open points included."""

import copy
import pickle

import pytest

from nkisim.machine import MACHINES, Reading


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])  # noqa: S301 (our own)
def test_copies_read_like_the_machine(name, copied):
    machine = MACHINES[name]
    again = copied(machine)
    assert again == machine
    for reading in Reading:
        assert again.read(reading) == machine.read(reading)
    assert again.timing.assumptions().keys() == machine.timing.assumptions().keys()
