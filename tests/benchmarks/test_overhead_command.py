"""What patching costs in Python: `python -m benchmarks overhead` holds its limits."""

import argparse

import pytest

from benchmarks import overhead
from benchmarks.overhead import Overhead


def test_limits_are_of_patching_and_of_decoding():
    assert Overhead(1.9, 9.0, 2.0, 1.0).holds
    assert not Overhead(2.1, 9.0, 2.0, 1.0).holds
    assert not Overhead(1.9, 9.0, 2.1, 1.0).holds


@pytest.mark.diffusers
def test_patching_wan_is_quick_and_a_patched_decode_at_most_twice_as_long(capsys):
    assert overhead.main(argparse.Namespace(model="wan2.1", turns=2)) == 0
    assert capsys.readouterr().out.startswith("wan2.1, decode at its production size")
