"""`python -m benchmarks latents`: what encoders lose in narrow types, beside the model in float64.

Reduced models with random weights, torch's own arithmetic, the mode of the latents, the smallest
size of each. Types that torch lacks an operator for are left out. `--store` writes what `trnconv
encode` chooses types by. Needs the extra `diffusers`.
"""

from __future__ import annotations

import argparse
import json
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any

from benchmarks.table import Column, aligned
from trnconv.corpus.latents.precision import DTYPES
from trnconv.models import ModelEntry, find, models

HELP = "errors of latents in float32, bf16 and fp16"


def add_options(parser: argparse.ArgumentParser) -> None:
    """What the command can be asked for."""
    parser.add_argument("--model", action="append", help="only this one; may be repeated")
    parser.add_argument("--store", action="store_true", help="keep them with the package")


def main(options: argparse.Namespace) -> int:
    """All models, or those asked for; the exit code."""
    entries = [find(name) for name in options.model] if options.model else models()
    floors_of = {entry.name: floors(entry) for entry in entries if "encode" in entry.phases}
    columns = [Column("model", "<"), *(Column(dtype) for dtype in DTYPES)]
    rows = [
        [name, *(f"{of[dtype]:.2e}" if dtype in of else "-" for dtype in DTYPES)]
        for name, of in floors_of.items()
    ]
    print(aligned(columns, rows))
    if options.store:
        where = Path(str(resources.files("trnconv.corpus").joinpath("data/precision.json")))
        known = json.loads(where.read_text("utf-8")) if where.is_file() else {}
        text = json.dumps({**known, **floors_of}, indent=1, sort_keys=True)
        where.write_text(text + "\n", "utf-8")
    return 0


def floors(entry: ModelEntry) -> dict[str, float]:
    """The RMS error of each type, of the latents' RMS; two digits, the last one rounded up."""
    import torch  # noqa: PLC0415 (optional)

    from trnconv.pytorch import model_builder  # noqa: PLC0415 (torch)

    size = min(entry.sizes, key=lambda known: known.frames * known.height * known.width)
    video = model_builder.example_video(entry, size)

    def latents(dtype: Any) -> Any:
        model = model_builder.build(entry, reduced=True, dtype=dtype)
        with torch.no_grad():
            return model_builder.encode(model, entry, video.to(dtype)).double()

    exact = latents(torch.float64)
    scale = exact.square().mean().sqrt()
    errors = {}
    for dtype in DTYPES:
        with suppress(NotImplementedError):
            difference = latents(getattr(torch, dtype)) - exact
            errors[dtype] = _up(float(difference.square().mean().sqrt() / scale))
    return errors


def _up(value: float) -> float:
    """Two digits that are not less."""
    short = float(f"{value:.1e}")
    return short if short >= value else float(f"{value * 1.05:.1e}")
