"""`python -m benchmarks trace-models`: run every model on the meta device, and keep what it does.

Writes `src/trnconv/traces/data`, which `trnconv plan --model` reads where torch is missing.
Needs the extra `diffusers`. A test traces two models again, so run this when it fails.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from trnconv import traces
from trnconv.model_plan import planned_sizes
from trnconv.models import find, models
from trnconv.traces.files import file_name, shipped_text

HELP = "trace models on the meta device; writes src/trnconv/traces/data"
DATA = Path(traces.__file__).parent / "data"


def add_options(parser: argparse.ArgumentParser) -> None:
    """What the command can be asked for."""
    parser.add_argument("--model", action="append", help="only this one; may be repeated")


def main(options: argparse.Namespace) -> int:
    """Observe, write; the exit code."""
    from trnconv.pytorch.model_tracer import trace_entry  # noqa: PLC0415 (torch: for this command only)

    DATA.mkdir(exist_ok=True)
    for entry in [find(name) for name in options.model] if options.model else models():
        for size in planned_sizes(entry):
            for phase in entry.phases:
                text = shipped_text(trace_entry(entry, size, phase))
                (DATA / file_name(entry, size, phase)).write_text(text, encoding="utf-8")
                sys.stderr.write(f"{entry.name} {size.name} {phase}: {len(text)} bytes\n")
    return 0
