"""The library of NKILIB_SRC, imported on top of nkisim, once for each machine."""

import os
import sys

import numpy as np
import pytest

import nki_library
import nki_library_stand_ins as stand_ins
import nkisim
from nki_library import RAN
from nkisim.running.environment import TARGET_VARIABLE


@pytest.fixture(params=["trn2", "trn3"])
def machine(request):
    return request.param


def imported(machine, monkeypatch, request):
    """The library with nkisim as `nki`, in the version it is written for, and a machine."""
    nkisim.install(version="0.6", replace_real=True)
    monkeypatch.setenv(TARGET_VARIABLE, machine)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # the checkout stays as it is
    monkeypatch.syspath_prepend(nki_library.import_root())
    for name, module in stand_ins.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    nki_library.forget_modules(unless_of=machine)
    library = nki_library.Library(machine, request.node.user_properties)
    stand_ins.give_norms(library)
    return library


@pytest.fixture
def library(machine, monkeypatch, request):
    yield imported(machine, monkeypatch, request)
    nkisim.uninstall()


@pytest.fixture
def trn3_library(monkeypatch, request):
    """For kernels of microscaled types, which trn3 alone has."""
    yield imported("trn3", monkeypatch, request)
    nkisim.uninstall()


@pytest.fixture
def numbered_enum(monkeypatch):
    """A function that gives the norms of a library NKI's member instead of its number."""
    import nkisim.isa as nisa

    def replace(library):
        module = library.module("core.subkernels.norm_tkg_utils")
        monkeypatch.setattr(module, "_DGE_MODE_NONE", nisa.dge_mode.none)

    return replace


@pytest.fixture
def rng():
    return np.random.default_rng(2026)


def pytest_sessionfinish(session, exitstatus):
    if os.environ.get("NKILIB_RECORD") and nki_library.ENTRIES and exitstatus == pytest.ExitCode.OK:
        nki_library.write_record()


def pytest_terminal_summary(terminalreporter):
    """`files F of 38, kernels K`: what ran in tests that passed."""
    passed = terminalreporter.stats.get("passed", [])
    told = [value for report in passed for name, value in report.user_properties if name == RAN]
    if told:
        files = {file for _, ran in told for file in ran}
        kernels = {kernel for kernel, _ in told}
        known = nki_library.jit_files()
        terminalreporter.write_line(
            f"files {len(files)} of {len(known)}, kernels {len(kernels)}"
            f" (not run: {', '.join(sorted(set(known) - files)) or 'none'})"
        )
