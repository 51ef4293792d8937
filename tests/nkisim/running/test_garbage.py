"""The collector's thresholds come back on every way out."""

import gc

import pytest

from nkisim.running.garbage import collected_rarely
from nkisim.running.kernel import run


def test_thresholds_are_raised_within_and_restored_after():
    before = gc.get_threshold()
    with collected_rarely():
        assert gc.get_threshold()[0] > before[0]
    assert gc.get_threshold() == before


def test_thresholds_are_restored_when_a_kernel_raises():
    before = gc.get_threshold()
    seen = []

    def kernel():
        seen.append(gc.get_threshold())
        raise RuntimeError("a mistake of the kernel")

    with pytest.raises(RuntimeError, match="a mistake of the kernel"):
        run(kernel, machine="trn2")
    assert seen[0] != before
    assert gc.get_threshold() == before
