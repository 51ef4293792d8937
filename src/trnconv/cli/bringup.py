"""`trnconv bringup`: climb the ladder from a copy to a model on a device, or in nkisim."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trnconv.cli.output import Json, console, print_json
from trnconv.cli.refusals import FAILED

if TYPE_CHECKING:
    from trnconv.bringup.ladder import Bench, Climbed
    from trnconv.host.record import HostRecord

_DEFAULT_FILE = Path("bringup.json")


def bringup(
    stage: Annotated[
        list[int] | None,
        typer.Option(
            help="0 simulate and compile without a device, 1 probes, 2 kernels, 3 torch,"
            " 4 calibrate; again for several. Default: 1, 2 and 3."
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(help="device or nkisim. Default: the device, where the vendor's nki is."),
    ] = None,
    apply: Annotated[
        list[str] | None, typer.Option(help="Apply a workaround on this host, from now on.")
    ] = None,
    file: Annotated[Path, typer.Option(help="File that findings are written to.")] = _DEFAULT_FILE,
    retry: Annotated[
        bool, typer.Option("--retry", help="Run the failed check again without changes.")
    ] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Discard earlier findings and start over.")
    ] = False,
    json: Json = False,
) -> None:
    """Check a device step by step; stop at the first failure and name a workaround.

    Findings are written to a file, and the next run continues from it. Exit code 1 if a check
    fails; apply the workaround that it names with --apply.
    """
    from trnconv.bringup.stages import climbed
    from trnconv.host.record import read_host, write_host

    host = read_host()
    if apply:
        host = host.with_workarounds(*apply)
        write_host(host)
    bench = _bench(host, on)
    shown = not json
    if shown:
        _head(bench, host)
    last: Climbed | None = None
    for last in climbed(stage or [1, 2, 3], bench, file, restart=restart, retry=retry):
        if shown:
            _show(last)
        _keep_measured(last, bench, host)
    if shown:
        _foot(last, file)
    else:
        from trnconv.bringup.result import ResultFile

        print_json(ResultFile.opened(file, bench).document())
    if last is not None and last.stops:
        raise typer.Exit(FAILED)


def _keep_measured(climbed: Climbed, bench: Bench, host: HostRecord) -> None:
    """What was measured on a device is this host's from now on; what was simulated is not."""
    from dataclasses import replace

    from trnconv.host.record import write_host

    made = climbed.finding.data.get("file")
    if made and bench.runner.is_device:
        write_host(replace(host, measured=str(Path(made).resolve())))


def _bench(host: HostRecord, on: str | None) -> Bench:
    from trnconv.bringup import stages
    from trnconv.errors import TrnconvError
    from trnconv.host.detect import detect
    from trnconv.host.vendor import find_vendor

    vendor = find_vendor()
    where = on or (stages.NKISIM if vendor.nki is None else stages.DEVICE)
    if where not in (stages.NKISIM, stages.DEVICE):
        raise TrnconvError(f"--on {where}: one of {stages.DEVICE}, {stages.NKISIM}.")
    detected = detect(default="trn2" if where == stages.NKISIM else None)
    return stages.bench_of(host, detected, vendor, where)


def _head(bench: Bench, host: HostRecord) -> None:
    screen = console()
    kind = "on a device" if bench.runner.is_device else "SIMULATED: nothing here ran on a device"
    screen.print(
        f"{bench.machine.name}, {bench.cores} core{'s' if bench.cores > 1 else ''} a launch, by"
        f" {bench.runner.where} ({kind})",
        markup=False,
    )
    on = ", ".join(host.workarounds) or "none"
    screen.print(f"workarounds: {on}", markup=False)


def _show(climbed: Climbed) -> None:
    check, finding = climbed.check, climbed.finding
    kept = " (kept)" if climbed.kept else ""
    line = f"{check.stage} {check.name:<24}{finding.state:<7}{finding.words}{kept}"
    console().print(line, markup=False)


def _foot(last: Climbed | None, file: Path) -> None:
    screen = console()
    screen.print()
    for line in _advice(last):
        screen.print(line, markup=False)
    screen.print(f"Findings are in {file}: send that file, whatever came out.", markup=False)


def _advice(last: Any) -> list[str]:
    from trnconv.host.workarounds import describe

    if last is None or not last.stops:
        return ["Every check has run."]
    stopped = f"Stopped at {last.check.name}: {last.check.asks}."
    if not last.workaround:
        return [stopped, "There is no workaround for it: please report it."]
    return [
        stopped,
        f"Apply a workaround and go on: trnconv bringup --apply {last.workaround}",
        f"  {describe(last.workaround)}",
    ]
