"""`python -m nkisim rules`: every rule in a line, evidence on request, unknown names refused."""

import pytest

from nkisim.__main__ import main
from nkisim.device_rules.rulebook import RULES


@pytest.fixture
def printed(capsys, monkeypatch):
    """A function: what the command prints, of this exit code."""
    monkeypatch.delenv("NKISIM_RULES", raising=False)

    def run(*arguments, code=0):
        assert main(["rules", *arguments]) == code
        return capsys.readouterr()

    return run


def states(text):
    """The state of each rule in the table."""
    rows = [line.split() for line in text.splitlines() if line.split(" ")[0] in RULES]
    return {row[0]: row[2] for row in rows}


def test_every_rule_has_a_line(printed):
    found = states(printed().out)
    assert set(found) == set(RULES)
    assert (found["loop-trips"], found["nested-loops"]) == ("warned", "off")


def test_strict_refuses_what_is_else_warned_about(printed):
    found = states(printed("--strict").out)
    assert (found["loop-trips"], found["nested-loops"]) == ("refused", "off")


def test_a_machine_has_its_own_rules_only(printed):
    found = states(printed("--machine", "trn1").out)
    assert "bf16-transpose-psum" in found
    assert "loop-trips" not in found


def test_evidence_is_shown_by_name(printed):
    text = printed("loop-trips", "nested-loops").out
    assert text.startswith("loop-trips\n  forbids   ")
    assert RULES["nested-loops"].remedy.split()[0] in text
    assert "\n\nnested-loops\n" in text


def test_an_unknown_rule_is_refused_in_words(printed):
    found = printed("nope", code=2)
    assert found.out == ""
    assert found.err.startswith("rules: device rules: a rule named 'nope'\n")
