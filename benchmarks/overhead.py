"""`python -m benchmarks overhead`: what patching costs in Python, on this machine's CPU.

A model on the meta device, where torch computes nothing: `patch_` itself, and a decode, patched
against unpatched. They take turns; the least time of each counts, of the process alone. The first
patched decode also plans, where rewrites have to be weighed; it is told apart.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trnconv.errors import UnsupportedError
from trnconv.models import find

HELP = "CPU time of patch_ and of a patched decode in Python (needs diffusers)"
PATCH_LIMIT_S = 2.0
LIMIT = 2.0  # times the unpatched decode


@dataclass(frozen=True)
class Overhead:
    """Seconds of this process."""

    patch_s: float
    first_s: float  # the first patched decode
    patched_s: float
    unpatched_s: float

    @property
    def ratio(self) -> float:
        """A patched decode against an unpatched one."""
        return self.patched_s / self.unpatched_s

    @property
    def holds(self) -> bool:
        """Whether both limits are held."""
        return self.patch_s < PATCH_LIMIT_S and self.ratio <= LIMIT


def add_options(parser: argparse.ArgumentParser) -> None:
    """What the command can be asked for."""
    parser.add_argument("--model", default="wan2.1", help="a name of the registry")
    parser.add_argument("--iterations", type=int, default=3, metavar="N", help="runs of each")


def main(options: argparse.Namespace) -> int:
    """Measure and print; the exit code is 1 beyond a limit."""
    if importlib.util.find_spec("diffusers") is None:
        raise UnsupportedError("it builds a model: pip install 'trnconv[diffusers]'.")
    overhead = measured(options.model, options.iterations)
    print(  # noqa: T201 (command lines print)
        f"{options.model}, decode at its production size on the meta device, CPU seconds here:",
        f"patch_ {overhead.patch_s:.3f}",
        f"unpatched {overhead.unpatched_s:.2f}, patched {overhead.patched_s:.2f}"
        f" ({overhead.ratio:.2f} x),"
        f" the first one with planning {overhead.first_s:.2f}"
        f" ({overhead.first_s / overhead.unpatched_s:.2f} x)",
        sep="\n",
    )
    return int(not overhead.holds)


def measured(name: str, iterations: int) -> Overhead:
    """Both decodes in turns, and patching."""
    import torch  # noqa: PLC0415 (the other commands run without it)

    from trnconv.pytorch import patch_, unpatch_  # noqa: PLC0415
    from trnconv.pytorch.model_builder import build, decode, example_latent  # noqa: PLC0415

    entry, on_meta = find(name), {"device": "meta", "dtype": torch.bfloat16}
    model = build(entry, **on_meta)
    latent = example_latent(entry, entry.production, **on_meta)

    def run() -> None:
        with torch.no_grad():
            decode(model, entry, latent)

    run()
    patching, patched, unpatched = [], [], []
    for _ in range(iterations + 1):
        unpatched.append(seconds(run))
        patching.append(seconds(lambda: patch_(model)))
        patched.append(seconds(run))
        unpatch_(model)
    return Overhead(max(patching), patched[0], min(patched[1:]), min(unpatched))


def seconds(call: Callable[[], Any]) -> float:
    """CPU time of this process."""
    start = time.process_time()
    call()
    return time.process_time() - start
