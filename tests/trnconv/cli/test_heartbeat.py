"""What long work says on stderr: nothing if it is short, how far and how long if it is not."""

from time import sleep

import pytest

from trnconv.cli import heartbeat


def test_what_is_quick_says_nothing(capsys):
    with heartbeat.working("planning") as tell:
        tell("prices", 1, 2)
    assert capsys.readouterr().err == ""


def test_without_a_terminal_there_are_lines_now_and_then(capsys, monkeypatch):
    monkeypatch.setattr(heartbeat, "EVERY_S", 0.02)
    with heartbeat.working("planning wan2.1") as tell:
        tell("prices", 20, 80)
        sleep(0.2)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) >= 2
    assert lines[0].startswith("planning wan2.1: prices, 20 of 80, 0 s so far, about ")


@pytest.mark.parametrize(
    ("done", "of", "spent", "more"),
    [
        (20, 80, 10.0, ", about 30 s more"),
        (80, 80, 10.0, ", about 0 s more"),
        (1, 80, 10.0, ""),  # too early to tell
        (0, 0, 10.0, ""),  # no end is known
    ],
)
def test_the_end_is_guessed_from_the_throughput(monkeypatch, done, of, spent, more):
    now = [100.0]
    monkeypatch.setattr(heartbeat, "monotonic", lambda: now[0])
    work = heartbeat._Work("planning", began=100.0)
    work.tell("prices", 0, of)
    now[0] += spent
    work.tell("prices", done, of)
    far = f", {done} of {of}" if of else ""
    assert work.line() == f"planning: prices{far}, 10 s so far{more}"


def test_a_failure_ends_the_lines(monkeypatch):
    monkeypatch.setattr(heartbeat, "EVERY_S", 0.01)
    with pytest.raises(ZeroDivisionError), heartbeat.working("planning"):
        1 / 0  # noqa: B018
