"""Which tests run by default: all but those that carry an opt-in marker.

An opt-in test runs when `-m` names one of its markers and all it needs is there. Otherwise it is
skipped, not deselected, so that the closing line of pytest counts it.
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


def _needs_nki_library():
    checkout = os.environ.get("NKILIB_SRC")
    if not checkout:
        return "NKILIB_SRC is not set"
    if not Path(checkout).is_dir():
        raise pytest.UsageError(f"NKILIB_SRC={checkout} is not a directory")
    return None


def _needs_device():
    return None if Path("/dev/neuron0").exists() else "no Neuron device"


def _needs_nothing():
    return None


OPT_IN = {
    "slow": _needs_nothing,
    "torch": _needs_package("torch"),
    "diffusers": _needs_package("torch", "diffusers"),
    "ray": _needs_package("torch", "diffusers", "av", "fsspec", "safetensors", "ray"),
    "distributed": _needs_package("torch", "diffusers"),
    "nkilib": _needs_nki_library,
    "device": _needs_device,
    "fast": _needs_nothing,
}


def pytest_addoption(parser):
    parser.addoption(
        "--random-shapes",
        type=int,
        default=500,
        metavar="N",
        help="how many random convolutions tests/trnconv/test_forward_random.py makes up",
    )


def why_skipped(markers, mark_expression):
    """The reason not to run a test with these opt-in markers, or None."""
    named = set(re.findall(r"\w+", mark_expression))
    if not named.intersection(markers):
        return f"{', '.join(markers)}: runs only when named, -m {markers[0]}"
    reasons = [f"{marker}: {reason}" for marker in markers if (reason := OPT_IN[marker]())]
    return "; ".join(reasons) or None


def pytest_collection_modifyitems(config, items):
    for item in items:
        markers = [marker for marker in OPT_IN if item.get_closest_marker(marker)]
        if markers and (reason := why_skipped(markers, config.getoption("markexpr"))):
            item.add_marker(pytest.mark.skip(reason=reason))
