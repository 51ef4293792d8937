"""What patching costs in Python: `python -m benchmarks overhead` holds its limits."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.overhead import Overhead
from yardstick import limit_s

ROOT = Path(__file__).parents[2]


def test_limits_are_of_patching_and_of_decoding():
    assert Overhead(1.9, 9.0, 2.0, 1.0).holds
    assert not Overhead(2.1, 9.0, 2.0, 1.0).holds
    assert not Overhead(1.9, 9.0, 2.1, 1.0).holds


@pytest.mark.diffusers
def test_patching_wan_is_quick_and_a_patched_decode_at_most_twice_as_long():
    """In a process of its own: in one with thousands of tests the ratio is a third larger."""
    command = [sys.executable, "-m", "benchmarks", "overhead", "--iterations", "2"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=limit_s(120), check=False
    )
    assert done.stdout.startswith("wan2.1, decode at its production size"), done.stderr
    assert done.returncode == 0, done.stdout
