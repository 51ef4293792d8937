"""Reads before any write, the first NaN or Inf, results that nobody wrote, and full HBM."""

import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.errors import MemoryLimitError, NkiValidationError
from nkisim.machine import TRN1, TRN2, TRN3
from nkisim.running.host_arrays import Spec
from nkisim.running.kernel import Kernel, run

X = np.arange(64, dtype=np.float32).reshape(8, 8)
both_ways = pytest.mark.parametrize("values", [True, False])


def inspected(kernel, *args, values=True):
    return run(kernel, *args, machine="trn2", values=values, inspect=True).inspection


def copied(tile, shape=(8, 8)):
    out = nl.ndarray(shape, "float32", nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


def line(kernel, number):
    """A line of a kernel here, counted from its `def`."""
    return f"test_inspection.py:{kernel.__code__.co_firstlineno + number}"


@both_ways
def test_a_kernel_that_sets_what_it_reads_has_nothing_to_report(values):
    def kernel(x):
        tile, scratch = nl.ndarray((8, 8), "float32"), nl.ndarray((8, 8), "float32", nl.hbm)
        nisa.dma_copy(tile[:, 0::2], x[:, 0::2])
        nisa.dma_copy(tile[:, 1::2], x[:, 1::2])
        for row in range(0, 8, 2):
            nisa.dma_copy(scratch[row : row + 2], tile[row : row + 2])
        identity = nl.shared_identity_matrix(8, "float32")
        nisa.tensor_tensor(tile, tile, identity, nl.add)
        nisa.dma_copy(tile[:, 2:6], scratch[:, 2:6])
        return copied(tile)

    found = inspected(kernel, X, values=values)
    assert found.uninitialised == ()
    assert found.not_finite is None


@both_ways
def test_reads_before_any_write_name_tensor_instruction_and_bytes(values):
    def kernel(x):
        tile = nl.ndarray((8, 8), "float32", name="tile")
        scratch = nl.ndarray((8, 8), "float32", nl.hbm, name="scratch")
        nisa.dma_copy(tile[:, 0:5], x[:, 0:5])
        nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
        nisa.dma_copy(scratch[0:4], tile[0:4])
        nisa.dma_copy(tile, scratch)
        return copied(tile)

    found = inspected(kernel, X, values=values)
    assert [str(read) for read in found.uninitialised] == [
        f"tensor_scalar (instruction 1, {line(kernel, 4)}) reads 96 of 256 bytes of 'tile' unset",
        f"dma_copy (instruction 3, {line(kernel, 6)}) reads 128 of 256 bytes of 'scratch' unset",
    ]


def test_the_first_value_that_is_not_finite_is_found():
    def kernel(x):
        tile, result = nl.ndarray((8, 8), "float32"), nl.ndarray((8, 8), "float32", name="result")
        nisa.dma_copy(tile, x)
        nisa.reciprocal(result, tile)
        nisa.tensor_tensor(result, result, result, nl.subtract)
        return copied(result)

    with np.errstate(all="ignore"):
        found = inspected(kernel, X)
    expected = f"reciprocal (instruction 1, {line(kernel, 3)}) writes inf to 'result' at (0, 0)"
    assert str(found.not_finite) == expected
    assert found.uninitialised == ()
    assert inspected(kernel, X + 1).not_finite is None


def test_what_the_last_instruction_of_a_kernel_writes_counts():
    x = X.copy()
    x[3, 4] = np.nan

    def kernel(x):
        out = nl.ndarray((8, 8), "float32", nl.shared_hbm, name="out")
        nisa.dma_copy(out, x)
        return out

    assert str(inspected(kernel, x).not_finite).endswith("writes nan to 'out' at (3, 4)")


@pytest.mark.usefixtures("logical_cores_of_one")
def test_iterations_of_a_loop_are_named_by_the_instruction_of_its_body():
    def kernel(x):
        tile, out = nl.ndarray((1, 8), "float32"), nl.ndarray((8, 8), "float32", nl.shared_hbm)

        def body(i):
            nisa.dma_copy(tile, x[nl.ds(i, 1)])
            nisa.reciprocal(tile, tile)
            nisa.dma_copy(out[nl.ds(i, 1)], tile)

        nl.fori_loop(0, 8, body)
        return out

    x = X + 1
    x[5, 2] = 0
    with np.errstate(all="ignore"):
        found = inspected(kernel, x).not_finite
    assert (found.op, found.instruction, found.element) == ("reciprocal", 1, (0, 2))


def test_nothing_is_inspected_unless_asked_for():
    assert run(copied, X, machine="trn2").inspection is None


@both_ways
@pytest.mark.parametrize("cores", [1, 2])
def test_a_result_that_nobody_wrote_is_refused(values, cores):
    def kernel(x):
        written = copied(x)
        return written, nl.ndarray((8, 8), "float32", nl.shared_hbm, name="forgotten")

    with pytest.raises(NkiValidationError, match="output 1, tensor 'forgotten'") as refusal:
        run(Kernel(kernel)[cores], X, machine="trn2", values=values)
    assert "whatever was there before" in refusal.value.limit


def test_arguments_and_constants_may_be_returned():
    def kernel(x):
        return x, nl.shared_constant(X)

    assert all(np.array_equal(out, X) for out in run(kernel, X, machine="trn2").outputs)


@pytest.mark.parametrize(("machine", "gib"), [(TRN1, 16), (TRN2, 24), (TRN3, 36)])
def test_hbm_has_a_capacity(machine, gib):
    """Arguments, results and scratch count together."""

    def kernel(x):
        out = nl.ndarray((gib - 2, 2**30), "uint8", nl.shared_hbm, name="out")
        nisa.dma_copy(out[0:1, 0:1], x[0:1, 0:1])
        if more:
            nl.ndarray((1, 1), "uint8", nl.hbm, name="scratch")
        return out

    argument = Spec((2, 2**30), "uint8")
    more = False
    run(kernel, argument, machine=machine, values=False)
    more = True
    with pytest.raises(MemoryLimitError, match="tensor 'scratch' of 1 bytes, beside") as refusal:
        run(kernel, argument, machine=machine, values=False)
    assert f"holds {gib * 2**30} bytes" in refusal.value.limit
    with pytest.raises(MemoryLimitError, match="tensor 'x'"):
        run(kernel, Spec((gib + 1, 2**30), "uint8"), machine=machine, values=False)
