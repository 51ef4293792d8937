"""Switches of a machine: by name, part of its name, one field each."""

import pytest

from nkisim.acceptance import ASSUMED
from nkisim.errors import NkiValidationError
from nkisim.machine import TRN2, find_machine
from nkisim.machine_switches import ACCEPTS, MACHINE, SWITCHES, TIMING, switched


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_changes_one_field_and_the_name(name):
    switch, machine = SWITCHES[name], find_machine(f"trn2+{name}")
    assert machine.name == f"trn2+{name}"
    owners = {ACCEPTS: "accepts", TIMING: "timing"}
    before, after = (
        one if switch.of == MACHINE else getattr(one, owners[switch.of]) for one in (TRN2, machine)
    )
    assert getattr(after, switch.field) == switch.value != getattr(before, switch.field)


def test_the_order_of_switches_does_not_matter():
    one, other = find_machine("trn2+no-loops+fence"), find_machine("trn2+fence+no-loops")
    assert one == other == switched(switched(TRN2, "fence"), "no-loops")
    assert one.name == "trn2+fence+no-loops"


def test_a_plain_machine_takes_everything_but_dmas_that_split_partitions():
    assert TRN2.accepts == ASSUMED
    assert [name for name, taken in vars(ASSUMED).items() if not taken] == ["split_partitions"]


def test_an_unknown_switch_is_refused_with_those_there_are():
    with pytest.raises(NkiValidationError, match="unknown switch 'luck'") as refused:
        find_machine("trn2+luck")
    assert "fence" in str(refused.value)
