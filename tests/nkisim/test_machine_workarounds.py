"""Workarounds of a machine: by name, part of its name, one field each."""

import pytest

from nkisim.acceptance import ASSUMED
from nkisim.errors import NkiValidationError
from nkisim.machine import TRN2, find_machine
from nkisim.machine_workarounds import ACCEPTS, MACHINE, TIMING, WORKAROUNDS, with_workarounds


@pytest.mark.parametrize("name", WORKAROUNDS)
def test_a_workaround_changes_one_field_and_the_name(name):
    workaround, machine = WORKAROUNDS[name], find_machine(f"trn2+{name}")
    assert machine.name == f"trn2+{name}"
    owners = {ACCEPTS: "accepts", TIMING: "timing"}
    before, after = (
        one if workaround.of == MACHINE else getattr(one, owners[workaround.of])
        for one in (TRN2, machine)
    )
    assert getattr(after, workaround.field) == workaround.value != getattr(before, workaround.field)


def test_the_order_of_workarounds_does_not_matter():
    one, other = find_machine("trn2+no-loops+fence"), find_machine("trn2+fence+no-loops")
    assert one == other == with_workarounds(with_workarounds(TRN2, "fence"), "no-loops")
    assert one.name == "trn2+fence+no-loops"


def test_a_plain_machine_takes_everything_but_dmas_that_split_partitions():
    assert TRN2.accepts == ASSUMED
    assert [name for name, taken in vars(ASSUMED).items() if not taken] == ["split_partitions"]


def test_an_unknown_workaround_is_refused_with_those_there_are():
    with pytest.raises(NkiValidationError, match="unknown workaround 'luck'") as refused:
        find_machine("trn2+luck")
    assert "fence" in str(refused.value)
