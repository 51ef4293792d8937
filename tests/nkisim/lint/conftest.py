"""A stand-in for NKI's modules, so that kernels can be imported without a toolchain.

The checker knows NKI by the names of its modules; these have the names and nothing else.
"""

import importlib.util
import itertools
import sys
from types import ModuleType

import pytest


class JittedKernel:
    """What `nki.jit` returns: the function is kept under `func`."""

    def __init__(self, func):
        self.func = func


class NKIObject:
    """The base class of a kernel's records."""


def _stub(*_args, **_kwargs):
    raise AssertionError("the checker must not run a kernel")


LANGUAGE_NAMES = """ndarray zeros full load store ds affine_range sequential_range static_range
dynamic_range fori_loop while_loop no_reorder program_id""".split()
ISA_NAMES = """nc_matmul tensor_copy tensor_tensor dma_copy memset activation
register_alloc register_move register_load""".split()


def _module(name, members, **extra):
    module = ModuleType(name)
    vars(module).update(dict.fromkeys(members, _stub), **extra)
    return module


LANGUAGE = _module(
    "nki.language", LANGUAGE_NAMES, NKIObject=NKIObject, float32="float32", sbuf="sbuf", psum="psum"
)
ISA = _module("nki.isa", ISA_NAMES)
NKI = _module("nki", (), jit=JittedKernel, language=LANGUAGE, isa=ISA)


@pytest.fixture
def import_text(tmp_path, monkeypatch):
    """Import a source text as a module in which `nki`, `nl` and `nisa` are known."""
    numbers = itertools.count()

    def load(source):
        name = f"kernels_{tmp_path.name}_{next(numbers)}"
        file = tmp_path / f"{name}.py"
        file.write_text(source)
        spec = importlib.util.spec_from_file_location(name, file)
        module = importlib.util.module_from_spec(spec)
        vars(module).update(nki=NKI, nl=LANGUAGE, nisa=ISA)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return load
