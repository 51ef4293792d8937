"""Python operators on tensors and registers are refused, never quietly wrong."""

import operator

import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.errors import NkiValidationError
from nkisim.running.kernel import run
from nkisim.tensors.registers import VirtualRegister

pytestmark = pytest.mark.usefixtures("logical_cores_of_one")  # loops on one core

BINARY = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.pow,
    operator.matmul,
    operator.and_,
    operator.lshift,
    operator.lt,
    operator.ge,
]


@pytest.mark.parametrize("python_operator", BINARY)
@pytest.mark.parametrize("swapped", [False, True])
def test_operators_on_a_tensor_name_the_instruction_to_use(python_operator, swapped):
    def kernel():
        tile = nl.ndarray((4, 4), nl.float32)
        return python_operator(2, tile) if swapped else python_operator(tile, 2)

    with pytest.raises(NkiValidationError, match=r"a Python operator on NkiTensor(.|\n)*nisa\."):
        run(kernel, machine="trn2")


@pytest.mark.parametrize("python_operator", [*BINARY, operator.eq, operator.ne])
def test_operators_on_a_register_are_refused(python_operator):
    with pytest.raises(NkiValidationError, match=r"a Python operator on VirtualRegister\(3\)"):
        python_operator(VirtualRegister(3), 3)


def test_a_register_is_not_none_and_is_a_key():
    register = VirtualRegister(3)
    assert (register == None, register != None) == (False, True)
    assert {register: "found"}[register] == "found"


def test_a_loop_counter_decides_nothing_in_python():
    def kernel(x):
        def body(i):
            if i:
                nisa.memset(tile, 1.0)

        tile = nl.ndarray((4, 4), nl.float32)
        nl.fori_loop(0, 3, body)
        return x

    with pytest.raises(NkiValidationError, match="compiled once, for every value of its counter"):
        run(kernel, np.zeros((4, 4), np.float32), machine="trn2")
