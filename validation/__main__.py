"""`python -m validation`: model every row, write docs/validation.md, print a line for each set.

`python -m validation 17 23a` and `--sets fitted,seen` model some rows and leave the page alone.
`python -m validation predict` writes down what the model says about held-out rows, before anybody
compares; `sensitivity` asks which constants the rows depend on; `forecast` writes
docs/predictions.md, what we expect of kernels whose times nobody has published; `page` writes
docs/validation.md again from what was modelled last.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from nkisim.machine import CONSTANTS_VERSION
from nkisim.measured_machine import read_machine
from validation import forecast_page
from validation.correlation import draw
from validation.forecast import DESIGN, LIBRARY, OURS, Forecast, library_design, our_layers
from validation.forecast import read_record as read_forecast
from validation.forecast import write_record as write_forecast
from validation.library_forecast import commit_of, library_forecasts
from validation.markdown import duration
from validation.outcome import Outcome, model
from validation.outcome_record import StaleRecordError, read_outcomes, write_outcomes
from validation.page import Beside, predicted, render
from validation.predictions import (
    NotPredictedError,
    Prediction,
    Record,
    read_record,
    require_predicted,
    unpredicted,
    write_record,
)
from validation.row import Row
from validation.rows import ROWS
from validation.sensitivity import MOST_INSTRUCTIONS, found_for, read_sensitivity, write_sensitivity
from validation.sets import FITTED, HELD, SEEN_BEFORE, SETS, read_sets, set_of
from validation.summary import set_lines
from validation.workers import for_each

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
PAGE = DOCS / "validation.md"
PICTURE = DOCS / "images" / "validation.svg"
FORECAST_PAGE = DOCS / "predictions.md"
LIBRARY_RECORD = HERE / "nki_library.json"


def chosen_rows(numbers: Sequence[str], sets: Sequence[str]) -> tuple[Row, ...]:
    """The rows with these numbers, or all of these sets; an unknown number ends the program."""
    known = [row.number for row in ROWS]
    unknown = [number for number in numbers if number not in known]
    if unknown:
        sys.exit(f"unknown row in {' '.join(unknown)}; rows are {', '.join(known)}")
    named = [row for row in ROWS if not numbers or row.number in numbers]
    outside = [number for number in numbers if _set_of_number(number) not in sets]
    if outside:
        sys.exit(f"rows {' '.join(outside)} are not in the sets {', '.join(sets)}")
    return tuple(row for row in named if set_of(row) in sets)


def _set_of_number(number: str) -> str:
    return next(set_of(row) for row in ROWS if row.number == number)


def compare(options: argparse.Namespace) -> None:
    """Model rows and hold them against their figures; all rows make the page."""
    rows = chosen_rows(options.rows, options.sets)
    if options.measured is not None:
        compare_measured(rows, options)
        return
    record = read_record()
    try:
        require_predicted(rows, record)
    except NotPredictedError as error:
        sys.exit(str(error))
    predictions = record.get(CONSTANTS_VERSION, {})
    outcomes = []
    for row, modelled in zip(rows, for_each(model, rows, options.workers), strict=True):
        outcomes.append(Outcome(row, modelled))
        print(progress(outcomes[-1], predictions), flush=True)
    if len(rows) == len(ROWS):
        write_outcomes(outcomes)
        write_page(outcomes)
    for line in set_lines(outcomes, ROWS):
        print(line)


def compare_measured(rows: Sequence[Row], options: argparse.Namespace) -> None:
    """Model rows with constants that were measured on a device; no page is written."""
    machine = read_machine(options.measured)
    base = machine.name.partition("@")[0]
    own = [replace(row, machine=machine.name) for row in rows if row.machine == base]
    print(f"{base}, constants {machine.constants}: {len(own)} of {len(rows)} rows are of {base}")
    for row in own:
        print(progress(Outcome(row, model(row)), {}, held=False), flush=True)


def write_page(outcomes: Sequence[Outcome]) -> None:
    """The page and its picture, from outcomes and what is on record beside them."""
    predictions = read_record().get(CONSTANTS_VERSION, {})
    PICTURE.write_text(draw(outcomes), encoding="utf-8")
    beside = Beside(predictions, read_sensitivity(), library_record())
    PAGE.write_text(render(outcomes, beside), encoding="utf-8")


def page_again(_: argparse.Namespace) -> None:
    """Write the page from what was modelled last."""
    try:
        require_predicted(ROWS, read_record())
        write_page(read_outcomes(ROWS))
    except (NotPredictedError, StaleRecordError) as error:
        sys.exit(str(error))


def progress(outcome: Outcome, predictions: dict[str, Prediction], *, held: bool = True) -> str:
    """One row in one line; with its prediction, if it is held out."""
    row, modelled = outcome.row, outcome.modelled
    predict_too = held and set_of(row) == HELD
    when = f"  predicted {predicted(outcome, predictions)}" if predict_too else ""
    return (
        f"{row.number:>4}  {row.title:<45} {row.machine} {row.dtype:<9}"
        f" published {duration(row.published_us):>9}  modelled {duration(modelled.default_us):>9}"
        f"  ratio {outcome.ratio:.2f}  {modelled.bound}{when}"
    )


def predict(options: argparse.Namespace) -> None:
    """Write down what is modelled for rows that were not predicted yet. No time is printed."""
    record: Record = read_record()
    rows = unpredicted(chosen_rows(options.rows, options.sets), record)
    for row, modelled in zip(rows, for_each(model, rows, options.workers), strict=True):
        prediction = Prediction.of(modelled, options.date)
        record.setdefault(CONSTANTS_VERSION, {})[row.number] = prediction
        write_record(record)
    numbers = " ".join(row.number for row in rows) or "none"
    print(f"predicted under constants {CONSTANTS_VERSION}: {numbers}")


def sensitivity(options: argparse.Namespace) -> None:
    """Vary every constant; all rows make the record. Held-out rows are left alone."""
    rows = chosen_rows(options.rows, (FITTED, SEEN_BEFORE))
    found = found_for(rows, options.most, lambda text: print(text, flush=True), options.workers)
    if not options.rows:
        write_sensitivity(found)
    untested = [finding["constant"] for finding in found["found"] if finding["untested"]]
    print(f"{found['rows']} rows; untested: {', '.join(untested) or 'none'}")


def forecast(options: argparse.Namespace) -> None:
    """Model kernels that nobody has published times of, and write the page."""
    record = read_forecast()
    record |= {"date": options.date, OURS: list(our_layers()), DESIGN: list(library_design())}
    if options.nki_library is not None:
        found = list(library_forecasts(options.nki_library))
        record |= {
            "commit": commit_of(options.nki_library),
            LIBRARY: [outcome for outcome in found if isinstance(outcome, Forecast)],
            "not_run": [outcome for outcome in found if not isinstance(outcome, Forecast)],
        }
    record.setdefault(LIBRARY, [])
    write_forecast(record)
    FORECAST_PAGE.write_text(forecast_page.render(record), encoding="utf-8")
    print(f"wrote {FORECAST_PAGE.name}: {sum(len(record[p]) for p in (OURS, DESIGN, LIBRARY))}")


def library_record() -> list[dict[str, Any]]:
    """What is on record about kernels of public libraries."""
    if not LIBRARY_RECORD.exists():
        return []
    entries: list[dict[str, Any]] = json.loads(LIBRARY_RECORD.read_text(encoding="utf-8"))
    return entries


def _sets(text: str) -> tuple[str, ...]:
    try:
        return read_sets(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _day(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no day: write YYYY-MM-DD") from error


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of processes: at least 1")
    return int(text)


def _parser(command: str, what: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m validation{command}", description=what)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="numbers of rows; all if none")
    parser.add_argument("--workers", type=_count, default=1, metavar="N", help="processes")
    return parser


def main(arguments: list[str]) -> None:
    """Do what a command line asks for."""
    if arguments[:1] == ["predict"]:
        parser = _parser(" predict", "Write down what the model says, without comparing.")
        parser.add_argument("--sets", type=_sets, default=(HELD,), help="fitted,seen,held-out")
        parser.add_argument("--date", type=_day, required=True, metavar="YYYY-MM-DD")
        predict(parser.parse_args(arguments[1:]))
    elif arguments[:1] == ["sensitivity"]:
        parser = _parser(" sensitivity", "Vary every constant, and write down what moves.")
        parser.add_argument(
            "--most", type=int, default=MOST_INSTRUCTIONS, help="scheduled instructions of a row"
        )
        sensitivity(parser.parse_args(arguments[1:]))
    elif arguments[:1] == ["forecast"]:
        parser = argparse.ArgumentParser(prog="python -m validation forecast")
        parser.add_argument("--date", type=_day, required=True, metavar="YYYY-MM-DD")
        parser.add_argument("--nki-library", type=Path, metavar="CHECKOUT")
        forecast(parser.parse_args(arguments[1:]))
    elif arguments[:1] == ["page"]:
        parser = argparse.ArgumentParser(prog="python -m validation page")
        page_again(parser.parse_args(arguments[1:]))
    else:
        parser = _parser("", "Modelled times against published ones; see also predict --help.")
        parser.add_argument("--sets", type=_sets, default=SETS, help="fitted,seen,held-out")
        parser.add_argument("--measured", type=Path, help="a file of `trnconv bringup --stage 4`")
        compare(parser.parse_args(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
