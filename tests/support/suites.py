"""Which suite a test is of: the default run, or what `-m` names.

A test that carries opt-in markers runs when `-m` names one of them and all it needs is there. If
one of them says what it costs or is for (`slow`, `fuzz`, `docs`), only that one counts: a slow test
of torch is of `-m slow`, not of `-m torch`, so that `scripts/test-all` runs it once.
"""

import importlib.util
import os
import re
from pathlib import Path

import pytest


def _needs_package(*names):
    def missing():
        absent = [name for name in names if importlib.util.find_spec(name) is None]
        return f"{' and '.join(absent)} not installed" if absent else None

    return missing


def _needs_folder(variable):
    def missing():
        folder = os.environ.get(variable)
        if not folder:
            return f"{variable} is not set"
        if not Path(folder).is_dir():
            raise pytest.UsageError(f"{variable}={folder} is not a directory")
        return None

    return missing


def _needs_all(*needs):
    return lambda: next((reason for need in needs if (reason := need())), None)


def _needs_device():
    return None if Path("/dev/neuron0").exists() else "no Neuron device"


def _needs_nothing():
    return None


OPT_IN = {
    "docs": _needs_nothing,
    "contact": _needs_nothing,
    "slow": _needs_nothing,
    "torch": _needs_package("torch"),
    "block": _needs_package("torch"),
    "audio": _needs_package("torch", "diffusers"),
    "diffusers": _needs_package("torch", "diffusers", "safetensors"),
    "adapters": _needs_package("torch", "diffusers", "einops", "peft", "accelerate"),
    "ray": _needs_package("torch", "diffusers", "av", "fsspec", "pyarrow", "safetensors", "ray"),
    "distributed": _needs_package("torch", "diffusers"),
    "nkilib": _needs_folder("NKILIB_SRC"),
    "models_src": _needs_all(
        _needs_folder("MODELS_SRC"), _needs_package("torch", "diffusers", "einops")
    ),
    "device": _needs_device,
    "fast": _needs_nothing,
    "fuzz": _needs_nothing,
    "strict": _needs_nothing,
    "sweep": _needs_nothing,
    "site": _needs_package("material"),
    "dist": _needs_package("hatchling"),
    "chaos": _needs_package(
        "torch", "diffusers", "av", "fsspec", "pyarrow", "safetensors", "moto", "flask", "s3fs"
    ),
    "corpus": _needs_package("torch", "diffusers", "av", "fsspec", "pyarrow", "safetensors"),
}
FIRST = ("slow", "fuzz", "docs")  # these decide, whatever else the test needs
TOPICS = (
    "integrations",
    "training",
)  # name tests of several needs; those that need nothing run by default


def suites_of(markers):
    """The opt-in markers of a test that `-m` has to name one of."""
    return next(([marker] for marker in FIRST if marker in markers), list(markers))


def why_skipped(markers, mark_expression, topics=()):
    """The reason not to run a test with these opt-in markers and topics, or None."""
    suites = suites_of(markers)
    names = suites if suites[0] in FIRST else [*suites, *topics]
    if not set(re.findall(r"\w+", mark_expression)).intersection(names):
        return f"{', '.join(markers)}: runs only when named, -m {suites[0]}"
    reasons = [f"{marker}: {reason}" for marker in markers if (reason := OPT_IN[marker]())]
    return "; ".join(reasons) or None
