"""docs/validation.md, the picture on it, and the commands that make them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from nkisim.machine import CONSTANTS_VERSION, TRN2
from repetition import few
from validation import __main__ as command
from validation import draw, page, page_text
from validation.correlation import draw as draw_picture
from validation.correlation import log_correlation
from validation.history import VERSIONS
from validation.outcome import model
from validation.outcome_record import StaleRecordError, read_outcomes, write_outcomes
from validation.page import Beside
from validation.predictions import Prediction, read_record
from validation.rows import ROWS
from validation.sensitivity import read_sensitivity
from validation.sets import HELD, SETS, set_of
from validation_rows import modelled_of, outcome_of, row_of

ROOT = Path(__file__).parents[2]
DRAWN = min(draw.HELD_OUT)
LINE = re.compile(
    r"(fitted|seen|held out): (no rows|not looked at|median \|error\| \d+\.\d %, within 15 %:"
    r" \d+/\d+, within 40 %: \d+/\d+, inside interval: \d+/\d+)"
)


def rendered(*outcomes, **beside):
    return page.render(outcomes, Beside(**beside))


def section(text, title):
    """What stands under a heading, up to the next one."""
    return re.search(rf"^#+ {title}$(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)[1]


def test_the_page_shows_each_row_once():
    text = rendered(outcome_of(1500, 1200, 1600, 1700, note="A sentence.", number="7"))
    cells = (
        "| 7 | whole kernels | a kernel | trn2 float32 | 1.50 ms | 1.60 ms | 1.07"
        " | 1.20 ms to 1.70 ms |"
    )
    assert text.count(cells) == 1
    assert "| dma | A sentence. |" in text
    assert "- **7** It adds. Source: a document; with launch." in text
    assert f"constants version {CONSTANTS_VERSION}" in text
    assert "measured" not in text.replace("what their authors measured", "")
    assert "Other people's kernels" not in text


def test_the_page_tells_the_sets_apart():
    text = rendered(
        outcome_of(100, 90, 110, 120, number="7"),
        outcome_of(100, 90, 130, 140, number="V49"),
        outcome_of(100, 90, 150, 160, number=DRAWN, group="data movement"),
        predictions={DRAWN: Prediction.of(modelled_of(90, 150, 160), "2026-11-15")},
    )
    assert "| 7 |" in section(text, "Fitted")
    assert "| V49 |" in section(text, "Seen")
    assert f"| {DRAWN} | data movement |" in section(text, "Held out")
    assert "| 2026-11-15, as now |" in section(text, "Held out")
    assert "median |error| 50.0 %" in section(text, "Held out")
    assert "| data movement | held out | 50.0 % | 0/1 | 0/1 | 1/1 |" in section(text, "By group")
    assert f"Beyond 40 %: rows {DRAWN};" in text
    assert "| held out | rows within 40 % | at least 85 % | 0.0 % | no |" in text
    assert "| fitted | median \\|error\\| | at most 8 % | 10.0 % | no |" in text
    assert "| held out | rows inside the interval | at least 75 % | 100.0 % | yes |" in text


def test_a_prediction_that_the_model_took_back_is_shown():
    outcome = outcome_of(100, 90, 150, 160, number=DRAWN)
    said = {DRAWN: Prediction.of(modelled_of(90, 140, 160), "2026-11-15")}
    assert page.predicted(outcome, said) == "2026-11-15: 140.0 us, changed since"
    assert page.predicted(outcome, {}) == "never"


def test_the_page_marks_a_published_time_outside_of_the_interval():
    assert "(outside)" in rendered(outcome_of(100, 110, 120, 130))
    assert "(outside)" not in rendered(outcome_of(100, 90, 120, 130))


def test_the_page_says_how_a_figure_was_made():
    slope = rendered(outcome_of(1, 1, 1, 1, repeats=16))
    assert "a document; slope of 16 and 32 repeats." in slope
    assert "a document; with the source's launch of 140.0 us." in rendered(
        outcome_of(1, 1, 1, 1, launch_us=140.0)
    )
    assert "| trn2 float32, 2 cores |" in rendered(outcome_of(1, 1, 1, 1, cores=2))


def test_choices_made_afterwards_are_listed():
    text = rendered(outcome_of(1, 1, 1, 1, chosen_after="The order."), outcome_of(1, 1, 1, 1))
    assert section(text, "Choices made after comparing").count("- **1** The order.") == 1


def test_times_have_the_unit_of_their_size():
    assert [page.duration(us) for us in (0.0402, 0.219, 15, 461.2, 51_800)] == [
        *("40.20 ns", "219.0 ns", "15.00 us", "461.2 us", "51.80 ms")
    ]


def test_the_page_lists_kernels_of_libraries():
    entry = {
        "kernel": "softmax",
        "machine": "trn2",
        "commit": "abcdef0123",
        "cases": 3,
        "max_error": 1e-6,
        "tolerance": 1e-5,
        "note": "",
    }
    refused = {**entry, "kernel": "top", "max_error": None, "tolerance": None, "note": "refused"}
    text = rendered(outcome_of(100, 90, 120, 130), library=[entry, refused])
    assert "| softmax | trn2 | abcdef0 | 3 | 1e-06 | 1e-05 |  |" in text
    assert "| top | trn2 | abcdef0 | 3 | - | - | refused |" in text


def test_the_record_of_library_kernels_has_the_columns_of_the_page():
    for entry in command.library_record():
        assert {"kernel", "commit", "cases", "max_error", "tolerance", "note"} <= set(entry)


def test_the_assumptions_named_on_the_page_exist():
    named = set(re.findall(r"`(\w+)`", page_text.BOUNDS))
    assert named
    assert named <= set(TRN2.timing.assumptions())


# The constants' history


def test_every_version_has_its_history():
    assert [one.version for one in VERSIONS][-1] == CONSTANTS_VERSION
    text = section(rendered(outcome_of(1, 1, 1, 1)), "The constants' history")
    for version in VERSIONS:
        assert f"| **{version.version}** | {version.summary}" in text
        for change in version.changes:
            assert f"| {version.version} | {change.name} | {change.before} | " in text


def test_constants_are_moved_by_fitted_rows_only():
    known = {row.number: row for row in ROWS}
    for version in VERSIONS:
        for change in version.changes:
            assert all(set_of(known[number]) != HELD for number in change.moved_by)


# The picture


def test_correlation_is_that_of_logarithms():
    factors = [outcome_of(us, us, 1.3 * us, us) for us in (1, 10, 1000)]
    assert log_correlation(factors) == pytest.approx(1)
    assert log_correlation([outcome_of(us, 1, 1 / us, 1) for us in (1, 10)]) == pytest.approx(-1)
    assert log_correlation(factors[:1]) is None


def test_the_picture_has_a_mark_for_every_row_at_its_place():
    outcomes = [
        outcome_of(10, 1, 10, 1, number="7", machine="trn1"),
        outcome_of(1000, 1, 100, 1, number=DRAWN, group="instruction rates"),
    ]
    picture = draw_picture(outcomes)
    assert picture == draw_picture(outcomes)
    titles = re.findall(r'<path d="M([\d.]+) ([\d.]+)[^>]*><title>([^<]*)</title>', picture)
    assert [title for _, _, title in titles] == ["7: a kernel, 1.00", f"{DRAWN}: a kernel, 0.10"]
    # Decades from 10 us to 1 ms on 560 px: the first is at a corner, its circle 4.5 px to the left;
    # the second is at the right edge and half way up, its triangle beginning 4.5 px higher.
    assert [(float(x), float(y)) for x, y, _ in titles] == [(73.5, 576), (638, 291.5)]


def test_filled_marks_are_held_out_rows():
    fitted, held = (
        draw_picture([outcome_of(10, 1, 20, 1, number=number)]) for number in ("7", DRAWN)
    )
    assert 'fill="none"><title>' in fitted
    assert 'fill="none"><title>' not in held


# On disk, and as commands


def test_the_page_on_disk_was_made_of_these_rows_with_these_constants():
    text = (ROOT / "docs" / "validation.md").read_text(encoding="utf-8")
    assert f"constants version {CONSTANTS_VERSION}," in text
    for name in SETS:
        table = re.findall(r"^\| (V?\d+[a-z]?) \|", section(text, name.capitalize()), re.MULTILINE)
        assert table == [row.number for row in ROWS if set_of(row) == name]
        assert re.search(rf"^{name}: ", text, re.MULTILINE)
    assert "changed since" not in text
    assert f"with constants {CONSTANTS_VERSION}, default reading; held-out" in text


def test_the_page_and_the_picture_on_disk_are_what_is_on_record():
    outcomes = read_outcomes(ROWS)
    predictions = read_record().get(CONSTANTS_VERSION, {})
    beside = Beside(predictions, read_sensitivity(), command.library_record())
    assert command.PAGE.read_text(encoding="utf-8") == page.render(outcomes, beside)
    assert command.PICTURE.read_text(encoding="utf-8") == draw_picture(outcomes)


def test_a_record_of_other_rows_or_constants_is_refused(tmp_path):
    path = tmp_path / "outcomes.json"
    outcome = outcome_of(1, 2, 3, 4)
    with pytest.raises(StaleRecordError, match=r"there is no outcomes\.json yet"):
        read_outcomes([outcome.row], path)
    write_outcomes([outcome], path)
    assert read_outcomes([outcome.row], path) == [outcome]
    with pytest.raises(StaleRecordError, match="lacks rows 2: run `python -m validation`"):
        read_outcomes([outcome.row, row_of(1, number="2")], path)
    path.write_text(path.read_text().replace(f'"{CONSTANTS_VERSION}"', '"0"'))
    with pytest.raises(StaleRecordError, match="made with constants 0"):
        read_outcomes([outcome.row], path)


@pytest.mark.parametrize("number", ["23d", "24a"])
def test_the_record_is_what_the_model_says(number):
    row = next(row for row in ROWS if row.number == number)
    (kept,) = read_outcomes([row])
    assert kept.modelled == model(row)


def run_command(*words):
    return subprocess.run(
        [sys.executable, "-m", "validation", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"PYTHONPATH": "src"},
    )


@few(1)
@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_command_prints_a_line_for_each_set_last(workers):
    result = run_command("23d", "24a", "--sets", "fitted,seen", "--workers", workers)
    assert result.returncode == 0
    lines = result.stdout.splitlines()[-3:]
    rows = result.stdout.splitlines()[:-3]
    assert [line.split()[0] for line in rows] == ["23d", "24a"]
    assert [LINE.fullmatch(line)[1] for line in lines] == list(SETS)
    assert lines[0].endswith("/2")
    assert lines[2] in {"held out: not looked at", "held out: no rows"}


@few(2)
@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["999"], 1, "unknown row in 999"),
        (["--sets", "fit"], 2, "unknown set fit"),
        (["17", "--sets", "seen"], 1, "rows 17 are not in the sets seen"),
        (["--workers", "0"], 2, "'0' is no number of processes"),
        (["predict"], 2, "--date"),
        (["predict", "--date", "today"], 2, "'today' is no day"),
        (["forecast"], 2, "--date"),
    ],
)
def test_what_is_not_there_is_refused(words, code, message):
    result = run_command(*words)
    assert result.returncode == code
    assert message in result.stderr


@pytest.fixture
def rows_of_two(monkeypatch, tmp_path):
    """A table of a fitted and a held-out row, with records and pages of its own."""
    rows = (row_of(20, number="7"), row_of(20, number=DRAWN))
    record = tmp_path / "predictions.json"
    monkeypatch.setattr(command, "ROWS", rows)
    monkeypatch.setattr(command, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(command, "PICTURE", tmp_path / "picture.svg")
    monkeypatch.setattr(command, "write_outcomes", lambda _: None)
    monkeypatch.setattr(command, "read_record", lambda: read_record(record))
    write = command.write_record
    monkeypatch.setattr(command, "write_record", lambda made: write(made, record))
    return tmp_path


def test_a_held_out_row_is_predicted_first_then_compared(rows_of_two, capsys):
    with pytest.raises(SystemExit, match=f"held-out rows without a prediction.*: {DRAWN}\\."):
        command.main([])
    assert capsys.readouterr().out == ""
    assert not (rows_of_two / "page.md").exists()

    command.main(["predict", "--date", "2026-11-15"])
    printed = capsys.readouterr().out
    assert printed == f"predicted under constants {CONSTANTS_VERSION}: {DRAWN}\n"

    command.main([])
    printed = capsys.readouterr().out
    assert "predicted 2026-11-15, as now" in printed
    assert "| 2026-11-15, as now |" in (rows_of_two / "page.md").read_text()
    assert f">{DRAWN}: " in (rows_of_two / "picture.svg").read_text()

    command.main(["predict", "--date", "2027-01-01"])  # what is on record stays
    assert capsys.readouterr().out.endswith(": none\n")
    command.main([])
    assert "predicted 2026-11-15, as now" in capsys.readouterr().out


def test_fitted_rows_are_compared_without_the_held_out_ones(rows_of_two, capsys):
    command.main(["--sets", "fitted,seen"])
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 4  # one row, and three lines
    assert printed[-1] == "held out: not looked at"
    assert not (rows_of_two / "page.md").exists()
