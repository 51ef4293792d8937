"""Every public function with wrong kinds of arguments: refusals of ours, never a bare error."""

import inspect
import warnings
from collections.abc import Callable

import numpy as np
import pytest

import nkisim.collectives as ncc
import nkisim.isa as nisa
import nkisim.language as nl
from nkisim import nki
from nkisim.enums import engine
from nkisim.errors import NkiValidationError
from nkisim.numerics.operators.operator import Operator
from nkisim.running.kernel import run
from nkisim.tensors.registers import VirtualRegister
from nkisim.tensors.tensor import NkiTensor
from repetition import few

MODULES = {"nisa": nisa, "nl": nl, "ncc": ncc, "nki": nki}


class Anything:
    """An object nobody expects."""


def tile(shape=(32, 16), dtype="float32", buffer=nl.sbuf):
    return nl.ndarray(shape, dtype, buffer)


WRONG = {
    "None": lambda: None,
    "zero": lambda: 0,
    "minus one": lambda: -1,
    "huge": lambda: 2**70,
    "float": lambda: 2.5,
    "nan": lambda: float("nan"),
    "flag": lambda: True,
    "string": lambda: "a",
    "empty tuple": lambda: (),
    "integers": lambda: (1, 2),
    "list": lambda: [64, 128],
    "pattern": lambda: [[1.0, "a"]],
    "ragged": lambda: [[1], [2, 3, 4]],
    "dictionary": dict,
    "set": lambda: {1},
    "array": lambda: np.zeros((2, 3)),
    "function": lambda: len,
    "class": lambda: int,
    "object": Anything,
    "slice": lambda: slice(0, 2),
    "tensor": tile,
    "small tensor": lambda: tile((1, 1), "int32"),
    "psum": lambda: tile(buffer=nl.psum),
    "hbm": lambda: tile(buffer=nl.shared_hbm),
    "register": VirtualRegister,
    "engine": lambda: engine.vector,
    "operator": lambda: nl.add,
    "dtype": lambda: nl.bfloat16,
    "region": lambda: nl.psum,
}


def plausible(parameter):
    """A value that the parameter might take, by its annotation alone; most calls get far."""
    annotation = str(parameter.annotation)
    if parameter.default is not parameter.empty:
        return parameter.default
    if parameter.name == "shape" or annotation == "Shape":
        return (32, 16)
    for word, make in PLAUSIBLE.items():
        if word in annotation:
            return make()
    return tile()


PLAUSIBLE = {
    "list[list[int]]": lambda: [[16, 32], [1, 16]],
    "Sequence[int]": lambda: (0, 1),
    "Sequence[NkiTensor]": lambda: [tile()],
    "NkiTensor": tile,
    "VirtualRegister": lambda: VirtualRegister(1),
    "MemoryRegion": lambda: nl.sbuf,
    "Operator": lambda: nl.add,
    "Callable": lambda: lambda counter: counter,
    "engine": lambda: engine.unknown,
    "str": lambda: "float32",
    "tuple[int": lambda: (0, 1),
    "float": lambda: 1.0,
    "Bound": lambda: 1,
    "Axis": lambda: 1,
    "int": lambda: 1,
}


def subjects():
    """Name and parameters of everything public that can be called."""
    for prefix, module in MODULES.items():
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value) or (isinstance(value, Operator) and value.eager):
                yield f"{prefix}.{name}"
    for owner, prefix in ((NkiTensor, "tensor"), (nisa.NkiInstruction, "instruction")):
        for name, member in vars(owner).items():
            if inspect.isfunction(member) and not name.startswith("_"):
                yield f"{prefix}.{name}"


def found(name):
    """The function of that name; of methods, bound to a fresh object."""
    prefix, _, attribute = name.partition(".")
    if prefix == "tensor":
        return getattr(tile(), attribute)
    if prefix == "instruction":
        return getattr(nisa.memset(tile(), 0.0), attribute)
    return getattr(MODULES[prefix], attribute)


def ends_well(call):
    """Whether a call inside of a kernel is taken; a refusal points into this file."""

    def kernel():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = call()
            if inspect.isgenerator(result):
                list(result)

    try:
        run(kernel, machine="trn3")
    except NkiValidationError as error:
        problem = error
    else:
        return True
    assert problem.file == __file__, problem
    # A cause is what nkisim could not explain; only a loop body of theirs may be one.
    assert problem.__cause__ is None or "VirtualRegister" in problem.what, problem
    return False


SUBJECTS = list(subjects())


def test_the_sweep_meets_everything():
    assert len(SUBJECTS) > 170
    assert {"nl.ndarray", "nisa.nc_matmul", "tensor.ap", "nl.add", "ncc.all_reduce"} <= set(
        SUBJECTS
    )


@few(40)
@pytest.mark.parametrize("name", SUBJECTS)
def test_wrong_kinds_are_refused_by_nkisim_not_by_python(name):
    parameters = run_once(lambda: dict(inspect.signature(found(name)).parameters))
    variable = {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    named = {n: p for n, p in parameters.items() if p.kind not in variable}
    for wrong in named:
        for make in WRONG.values():

            def call(wrong=wrong, make=make):
                arguments = {n: plausible(p) for n, p in named.items() if n != wrong}
                return found(name)(**arguments, **{wrong: make()})

            ends_well(call)
    assert not ends_well(lambda: found(name)(*[tile() for _ in range(40)])) or "depends_on" in name
    assert not ends_well(lambda: found(name)(no_such_parameter=1)) or name == "nki.jit"


def run_once(question: Callable):
    """The answer to a question that is asked inside of a kernel."""
    answer = []
    run(lambda: answer.append(question()), machine="trn3")
    return answer[0]
