"""A test runs by default, or in one suite that `-m` names."""

import pytest

import suites


@pytest.mark.parametrize(
    ("markers", "asked", "runs"),
    [
        (["slow"], "", False),
        (["slow"], "slow", True),
        (["slow", "torch"], "torch", False),
        (["slow", "torch"], "slow", True),
        (["slow", "torch"], "torch and slow", True),
        (["torch", "nkilib"], "torch", True),
        (["torch", "nkilib"], "nkilib", True),
        (["torch", "fuzz"], "torch", False),
        (["torch", "fuzz"], "plan and fuzz", True),
        (["docs"], "", False),
        (["docs", "torch"], "torch", False),
        (["docs", "torch"], "docs or dist", True),
        (["slow"], "slower", False),
    ],
)
def test_which_marker_has_to_be_named(markers, asked, runs, monkeypatch):
    monkeypatch.setattr(suites, "OPT_IN", dict.fromkeys(suites.OPT_IN, lambda: None))
    reason = suites.why_skipped(markers, asked)
    assert (reason is None) is runs
    assert runs or reason == (
        f"{', '.join(markers)}: runs only when named, -m {suites.suites_of(markers)[0]}"
    )


@pytest.mark.parametrize(
    ("markers", "asked", "runs"),
    [
        (["torch"], "integrations", True),
        (["torch"], "", False),
        (["slow", "torch"], "integrations", False),
    ],
)
def test_a_topic_names_tests_of_all_needs_but_for_long_ones(markers, asked, runs, monkeypatch):
    monkeypatch.setattr(suites, "OPT_IN", dict.fromkeys(suites.OPT_IN, lambda: None))
    assert (suites.why_skipped(markers, asked, {"integrations"}) is None) is runs


def test_what_is_missing_is_said(monkeypatch):
    monkeypatch.setitem(suites.OPT_IN, "torch", lambda: "torch not installed")
    assert suites.why_skipped(["slow", "torch"], "slow") == "torch: torch not installed"


def test_every_suite_is_a_marker_that_says_so(pytestconfig):
    """`scripts/test-all` reads which suites there are from these lines."""
    lines = pytestconfig.getini("markers")
    named = {line.split(":")[0] for line in lines if "runs only when named" in line}
    parts = {line.split(":")[0] for line in lines if ": of `docs`, needs" in line}
    assert named | parts == set(suites.OPT_IN)
    assert not named & parts
