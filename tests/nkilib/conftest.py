"""The library of NKILIB_SRC, imported on top of nkisim, once for each target."""

import os
import sys
from types import ModuleType

import numpy as np
import pytest

import nki_library
import nkisim
from nkisim.running.target import TARGET_VARIABLE


@pytest.fixture(params=["trn2", "trn3"])
def target(request):
    return request.param


@pytest.fixture
def library(target, monkeypatch):
    """Import the library with nkisim as `nki` and this target as the machine."""
    nkisim.install(replace_real=True)
    monkeypatch.setenv(TARGET_VARIABLE, target)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # the checkout stays as it is
    monkeypatch.syspath_prepend(nki_library.import_root())
    for name in ("neuronxcc", "neuronxcc.nki"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    typing = nki_library.old_typing_module()
    monkeypatch.setitem(sys.modules, typing.__name__, typing)
    nki_library.forget_modules(unless_of=target)
    yield nki_library.Library(target)
    nkisim.uninstall()


@pytest.fixture
def rng():
    return np.random.default_rng(2026)


def pytest_sessionfinish(session, exitstatus):
    if os.environ.get("NKILIB_RECORD") and nki_library.ENTRIES and exitstatus == pytest.ExitCode.OK:
        nki_library.write_record()
