"""`trnconv export`: kernels and recipes of named convolutions as a folder without this package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trnconv.cli.heartbeat import working
from trnconv.cli.layer_options import Cores, MachineName, asked_machine
from trnconv.cli.model_options import DEFAULT_PHASE, Phase
from trnconv.cli.output import Json, print_json


def export(
    what: Annotated[
        str,
        typer.Argument(
            help="A model name, comma-separated layer names, or a .json file of shapes."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Output folder.")],
    size: Annotated[
        str, typer.Option(help="With a model: height x width, or height x width x frames.")
    ] = "",
    phase: Phase = None,
    machine: MachineName = "trn2",
    cores: Cores = None,
    name: Annotated[
        str, typer.Option(help="Name of the generated Python package.")
    ] = "exported_conv",
    json: Json = False,
) -> None:
    """Export convolutions as a package of plain NKI and torch, with tests.

    The folder has the layout of Hugging Face's `kernels` (edition 5, backend neuron) and needs
    neither trnconv nor NumPy. It uses the planner's direct convolutions only.
    """
    from trnconv import __version__
    from trnconv.export import exported_entry, problems_of, write_folder

    problems = problems_of(what, size, phase or DEFAULT_PHASE, asked_machine(machine))
    entries = []
    with working(f"exporting {what}") as tell:
        for problem in problems:
            entries.append(exported_entry(problem, cores))
            tell("problems", len(entries), len(problems))
    words = " ".join(part for part in (what, size, phase or "") if part)
    files = write_folder(out, name, entries, words, __version__)
    answer = {
        "folder": str(out),
        "package": name,
        "problems": len(entries),
        "files": len(files),
        "bytes": sum(path.stat().st_size for path in files),
    }
    if json:
        print_json(answer)
    else:
        problems_in_words = f"{len(entries)} problem{'s' if len(entries) > 1 else ''}"
        typer.echo(
            f"{problems_in_words} in {answer['files']} files, {answer['bytes']} bytes: {out}\n"
            f"Its tests, in the simulator: python -m pytest {out / 'tests'}"
        )
