"""The ladder itself: its file, going on, hanging checks, notes and workarounds."""

import json

import pytest

from nkisim.machine import TRN2
from trnconv.bringup.ladder import GREEN, NOTED, OFF, RED, STARTED, Bench, Check, Finding, climb
from trnconv.bringup.result import ResultFile
from trnconv.bringup.runner import SimulatedRunner
from trnconv.errors import UnsupportedError


def bench(*workarounds):
    return Bench(TRN2, 1, SimulatedRunner(TRN2, 1), frozenset(workarounds))


def check(name, state, **options):
    def found(_bench):
        if state == "raises":
            raise ValueError("first line\nsecond\nthird\nfourth")
        return Finding(state, f"{name} is {state}")

    return Check(1, name, f"asks {name}", found, **options)


def states(checks, *workarounds):
    return [(one.check.name, one.finding.state) for one in climb(checks, bench(*workarounds))]


def test_it_stops_at_the_first_red_check():
    checks = [check("a", GREEN), check("b", RED), check("c", GREEN)]
    assert states(checks) == [("a", GREEN), ("b", RED)]


def test_what_is_raised_is_red_in_three_lines():
    (only,) = climb([check("a", "raises", workaround="fence")], bench())
    assert only.finding == Finding(RED, "ValueError: first line second third")
    assert only.workaround == "fence"


def test_notes_never_stop():
    checks = [check("a", RED, notes=True), check("b", GREEN, notes=True)]
    assert states(checks) == [("a", NOTED), ("b", NOTED)]


def test_a_workaround_that_is_on_leaves_its_problem_out():
    checks = [check("a", RED, workaround="fence"), check("b", RED, void_with=("fence",))]
    assert states(checks, "fence") == [("a", OFF), ("b", OFF)]


def climbed(path, checks, *workarounds, retry=False):
    file = ResultFile.opened(path, bench(*workarounds))
    done = []
    for one in climb(
        checks,
        bench(*workarounds),
        lambda asked: file.kept(asked, frozenset(workarounds), retry=retry),
        file.begin,
    ):
        file.end(one)
        done.append((one.check.name, one.finding.state, one.kept))
    return done


def test_green_checks_are_kept_and_red_ones_climbed_again(tmp_path):
    path = tmp_path / "bringup.json"
    assert climbed(path, [check("a", GREEN), check("b", RED)]) == [
        ("a", GREEN, False),
        ("b", RED, False),
    ]
    document = json.loads(path.read_text())
    assert (document["stopped_at"], document["workaround"]) == ("b", None)
    again = climbed(path, [check("a", RED), check("b", GREEN)])
    assert again == [("a", GREEN, True), ("b", GREEN, False)]


def test_another_workaround_asks_everything_again(tmp_path):
    path = tmp_path / "bringup.json"
    climbed(path, [check("a", GREEN)])
    assert climbed(path, [check("a", GREEN)], "fence") == [("a", GREEN, False)]


def test_a_check_that_never_ended_is_red_until_it_is_retried_or_off(tmp_path):
    path = tmp_path / "bringup.json"
    hanging = check("a", GREEN, workaround="fence")
    ResultFile.opened(path, bench()).begin(hanging)
    assert json.loads(path.read_text())["checks"][0]["state"] == STARTED
    assert climbed(path, [hanging], retry=False) == [("a", RED, True)]
    ResultFile.opened(path, bench(), restart=True).begin(hanging)
    assert climbed(path, [hanging], "fence") == [("a", OFF, False)]
    ResultFile.opened(path, bench(), restart=True).begin(hanging)
    assert climbed(path, [hanging], retry=True) == [("a", GREEN, False)]


def test_a_note_that_never_ended_does_not_stop(tmp_path):
    path = tmp_path / "bringup.json"
    hanging = check("a", GREEN, notes=True)
    ResultFile.opened(path, bench()).begin(hanging)
    assert climbed(path, [hanging, check("b", GREEN)]) == [("a", NOTED, True), ("b", GREEN, False)]


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "bringup.json"
    path.write_text("[]")
    with pytest.raises(UnsupportedError, match="Name another with --file"):
        ResultFile.opened(path, bench())
