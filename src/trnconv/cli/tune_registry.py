"""`trnconv tune --registry`: make the plans that come with the package."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trnconv.cli.heartbeat import Tell, working
from trnconv.cli.output import amount, console, print_json, table

if TYPE_CHECKING:
    from trnconv.model_plan.registry_plans import Making
    from trnconv.planner.shipped_file import ShippedFile


def tune_registry(
    model: str | None,
    accuracy: str,
    candidates: int,
    out: Path | None,
    *,
    again: bool,
    json: bool,
) -> None:
    """Make the files of all models, or of one, for every machine that plans are shipped for."""
    from trnconv.model_plan.registry_plans import SHIPPED_LAUNCHES, Making, make_plans
    from trnconv.models import find, models
    from trnconv.runtime.tuning import Effort

    folder = out or _package_folder()
    folder.mkdir(parents=True, exist_ok=True)
    entries = models() if model is None else (find(model),)
    wanted = [
        Making(entry, *launch, accuracy, Effort(candidates), folder, again)
        for launch in SHIPPED_LAUNCHES
        for entry in entries
    ]
    with working("tuning") as tell:
        made = [(making, make_plans(making, _teller(tell, making))) for making in wanted]
    answer = {
        "kind": "modelled",
        "folder": str(folder),
        "files": [_document(making, file) for making, file in made],
    }
    if json:
        print_json(answer)
    else:
        _show(answer)


def _package_folder() -> Path:
    """Where the package keeps them: of a checkout, the folder that is committed."""
    from importlib import resources

    from trnconv.planner.shipped_plans import DATA

    return Path(str(resources.files("trnconv.planner") / DATA))


def _teller(tell: Tell, making: Making) -> Callable[[int, int], None]:
    where = f"{making.entry.name} on {making.machine}, cores {making.cores}"
    return lambda done, count: tell(f"{where}: convolutions", done, count)


def _document(making: Making, file: ShippedFile) -> dict[str, Any]:
    entries = file.plans.values()
    return {
        "file": file.name,
        "stamp": dict(file.stamp),
        "plans": len(entries),
        "tuned": sum(entry.get("tried", 0) > 0 for entry in entries),
        "refused": sum("refused" in entry for entry in entries),
        "bytes": making.path.stat().st_size,
    }


def _show(answer: dict[str, Any]) -> None:
    screen = console()
    shown = table("", "file", "plans", "more than searched", "too long for one launch", "size")
    for file in answer["files"]:
        counts = (str(file[name]) for name in ("plans", "tuned", "refused"))
        shown.add_row(file["file"], *counts, amount(file["bytes"], "B"))
    screen.print(shown)
    screen.print()
    screen.print(f"Stored in {answer['folder']}.", markup=False)
