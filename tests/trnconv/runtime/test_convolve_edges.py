"""The forward convolution on every edge case of the table, on every machine."""

import pytest

from conv_arrays import integer_arrays, normal_arrays
from conv_calls import compute, lowest_rank
from repetition import few
from tolerance import assert_convolution
from trnconv.cases import EDGE

cases = pytest.mark.parametrize("case", EDGE, ids=[case.name for case in EDGE])


@few(12)
@cases
def test_outputs_are_the_reference_within_the_bound(case):
    x, w, bias = normal_arrays(case.shape, case.dtype)
    y = compute(case.shape, (x, w, bias), rank=lowest_rank(case.shape))
    assert_convolution(y, x, w, bias, case.shape)


MACHINES = [("trn1", 1), ("trn2", 2), ("trn3", 1), ("trn3", 2)]


@few(12)
@pytest.mark.parametrize("machine", MACHINES, ids=str)
@cases
def test_integers_come_out_exactly(case, machine):
    machine, cores = machine
    x, w, bias = integer_arrays(case.shape, case.dtype, bias=cores == 1)
    y = compute(case.shape, (x, w, bias), machine=machine, cores=cores)
    assert_convolution(y, x, w, bias, case.shape)
