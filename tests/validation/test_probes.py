"""Probes run in the simulator, give what is documented, and tell the two answers apart in time."""

import ml_dtypes
import numpy as np
import pytest

import nkisim
from nkisim import Kernel
from nkisim.machine import TRN2, Reading
from nkisim.machine_workarounds import with_workarounds
from nkisim.timing import schedule
from parser_lint import lint

nkisim.install()

from validation.probes.column_tiles import column_tiles
from validation.probes.growing_bank import growing_bank
from validation.probes.matmul_operands import matmul_operands
from validation.probes.vector_pairs import vector_pairs

BF16 = ml_dtypes.bfloat16
PROBES = (column_tiles, growing_bank, matmul_operands, vector_pairs)


def noise(*shape, dtype=BF16):
    return np.random.default_rng(shape).standard_normal(shape).astype(dtype)


def times(kernel, *arguments, machine=TRN2):
    run = nkisim.run(Kernel(kernel), *arguments, machine=machine)
    return schedule(run.trace, run.machine, Reading.default, memory=run.memory).makespan_ns


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.__name__)
def test_probes_keep_to_the_python_of_nki(probe):
    assert lint(probe).findings == ()


def test_pairs_are_rounded_once():
    a, b = noise(128, 256), noise(128, 256)
    y = nkisim.run(Kernel(vector_pairs), a, b, 1, machine="trn2").outputs
    assert np.array_equal(y, (a.astype(np.float32) + b.astype(np.float32)).astype(np.float16))


def test_subnormal_operands_count():
    ones = np.ones((128, 32), np.float16)
    tiny = np.full((128, 64), 2.0**-20, np.float16)
    y = nkisim.run(Kernel(matmul_operands), ones, tiny, 1, machine="trn2").outputs
    assert np.all(np.asarray(y) == 2.0**-13)


def test_operands_of_two_types():
    s, m = noise(128, 32, dtype=np.float16), noise(128, 64)
    y = nkisim.run(Kernel(matmul_operands), s, m, 1, machine="trn2").outputs
    exact = s.astype(np.float64).T @ m.astype(np.float64)
    assert np.allclose(y, exact, atol=128 * 2.0**-24 * 128)
    assert times(matmul_operands, s, m, 50) == times(matmul_operands, s.astype(BF16), m, 50)


def test_a_bank_is_read_while_it_grows():
    s, m = noise(128, 32), noise(128, 64)
    once, twice = np.asarray(nkisim.run(Kernel(growing_bank), s, m, machine="trn2").outputs)
    assert np.array_equal(2 * once, twice)


def test_column_tiles_tell_machines_apart():
    s, m = noise(128, 64), noise(128, 256)

    def each(halves, machine):
        """What 200 more repeats take."""
        few, many = (times(column_tiles, s, m, halves, n, machine=machine) for n in (200, 400))
        return many - few

    assert each(2, TRN2) == pytest.approx(2 * each(1, TRN2), rel=0.01)
    side_by_side = with_workarounds(TRN2, "column-tiles")
    assert each(2, side_by_side) == pytest.approx(each(1, side_by_side), rel=0.1)
