"""Which tests run by default: all but those that carry an opt-in marker (`support/suites.py`).

The others are skipped, not deselected, so that the closing line of pytest counts them.
"""

from pathlib import Path

import pytest

import repetition
from suites import OPT_IN, TOPICS, why_skipped

GOLDEN = Path(__file__).parent / "golden"


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


@pytest.hookimpl(tryfirst=True)  # before pytest looks for what `-m` names
def pytest_collection_modifyitems(config, items):
    repetition.thin(items)
    for item in items:
        carried = {mark.name for mark in item.iter_markers()}
        markers = [marker for marker in OPT_IN if marker in carried]
        topics = carried.intersection(TOPICS)
        if markers and (reason := why_skipped(markers, config.getoption("markexpr"), topics)):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def logical_cores_of_one(monkeypatch):
    """Kernels are compiled for logical cores of one, so that loops may run on one core."""
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "1")
