"""Which tests run by default: all but those that carry an opt-in marker.

An opt-in test runs when `-m` names one of its markers and all it needs is there. Otherwise it is
skipped, not deselected, so that the closing line of pytest counts it.
"""

import importlib.util
import os
import re
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


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
    "contact": _needs_nothing,
    "slow": _needs_nothing,
    "torch": _needs_package("torch"),
    "diffusers": _needs_package("torch", "diffusers", "safetensors"),
    "adapters": _needs_package("torch", "diffusers", "einops", "peft", "accelerate"),
    "ray": _needs_package("torch", "diffusers", "av", "fsspec", "safetensors", "ray"),
    "distributed": _needs_package("torch", "diffusers"),
    "nkilib": _needs_folder("NKILIB_SRC"),
    "models_src": _needs_all(
        _needs_folder("MODELS_SRC"), _needs_package("torch", "diffusers", "einops")
    ),
    "device": _needs_device,
    "fast": _needs_nothing,
    "fuzz": _needs_nothing,
    "strict": _needs_nothing,
    "site": _needs_package("material"),
    "dist": _needs_package("hatchling"),
    "corpus": _needs_package("torch", "diffusers", "av", "fsspec", "safetensors"),
}
EVERY_PAGE = "docs"  # no opt-in: pages that need only the base dependencies always run


def pytest_addoption(parser):
    parser.addoption(
        "--random-shapes",
        type=int,
        metavar="N",
        help="how many problems each random suite of tests/trnconv/runtime makes up, in every run",
    )
    parser.addoption(
        "--rewrite-golden",
        action="store_true",
        help="write the files of tests/golden anew, for review, instead of comparing with them",
    )


@pytest.fixture
def golden(request):
    """Compare a text with the reviewed file of this name in tests/golden."""
    rewrite = request.config.getoption("--rewrite-golden")

    def compare(name, text):
        path = GOLDEN / name
        if rewrite:
            path.write_text(text, encoding="utf-8")
        expected = path.read_text(encoding="utf-8") if path.is_file() else ""
        assert text == expected, f"{name}: if that is meant, `pytest --rewrite-golden` and review"

    return compare


def why_skipped(markers, mark_expression):
    """The reason not to run a test with these opt-in markers, or None."""
    named = set(re.findall(r"\w+", mark_expression))
    if not named.intersection({*markers, EVERY_PAGE}):
        return f"{', '.join(markers)}: runs only when named, -m {markers[0]}"
    reasons = [f"{marker}: {reason}" for marker in markers if (reason := OPT_IN[marker]())]
    return "; ".join(reasons) or None


def pytest_collection_modifyitems(config, items):
    for item in items:
        markers = [marker for marker in OPT_IN if item.get_closest_marker(marker)]
        if markers and (reason := why_skipped(markers, config.getoption("markexpr"))):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def logical_cores_of_one(monkeypatch):
    """Kernels are compiled for logical cores of one, so that loops may run on one core."""
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "1")
