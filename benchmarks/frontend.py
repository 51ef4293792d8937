"""`python -m benchmarks frontend`: what a simulated convolution costs on this machine's CPU.

One bf16 convolution of 5 GFLOP through nkisim, against torch's fp32 one, both on one thread. They
take turns, so that what else the machine does meets both; the least time of each counts. Unlike
every other command's, these times are of this machine, and say nothing about a NeuronCore.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from trnconv.errors import UnsupportedError

HELP = "CPU time of a simulated convolution against torch's (needs torch)"
INPUT = (1, 128, 3, 53, 107)
WEIGHT = (128, 128, 3, 3, 3)
PADDING = (0, 1, 1)
LIMIT = 4.0  # times torch
THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


def add_options(parser: argparse.ArgumentParser) -> None:
    """What the command can be asked for."""
    parser.add_argument("--iterations", type=int, default=5, metavar="N", help="runs of each")


def main(options: argparse.Namespace) -> int:
    """Time both in a process of one thread; the exit code is 1 beyond the limit."""
    if importlib.util.find_spec("torch") is None:
        raise UnsupportedError("it compares with torch: pip install 'trnconv[torch]'.")
    command = [sys.executable, "-m", "benchmarks.frontend", str(options.iterations)]
    alone = dict.fromkeys(THREADS, "1")  # NumPy's BLAS reads them when it is loaded
    return subprocess.run(command, check=False, env={**os.environ, **alone}).returncode  # noqa: S603


def compare(iterations: int) -> int:
    """Time both, print them, say whether the limit is held."""
    import torch  # noqa: PLC0415 (the other commands run without it)

    from trnconv.pytorch import functional  # noqa: PLC0415

    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(shape, generator=generator) for shape in (INPUT, WEIGHT))
    narrow = x.bfloat16(), w.bfloat16()
    simulated, theirs = alternately(
        lambda: functional.conv3d(*narrow, padding=PADDING, backend="nkisim"),
        lambda: torch.nn.functional.conv3d(x, w, padding=PADDING),
        iterations,
    )
    both = f"nkisim, bf16: {1000 * simulated:.0f} ms; torch, fp32: {1000 * theirs:.0f} ms"
    print(both, last_line(simulated / theirs), sep="\n")  # noqa: T201 (command lines print)
    return int(simulated > LIMIT * theirs)


def alternately(
    first_call: Callable[[], Any], second_call: Callable[[], Any], iterations: int
) -> tuple[float, float]:
    """The least seconds of each; the first run of both is not counted, it fills caches."""
    first_call()
    second_call()
    times = [(seconds(first_call), seconds(second_call)) for _ in range(iterations)]
    return min(first for first, _ in times), min(second for _, second in times)


def seconds(call: Callable[[], Any]) -> float:
    """How long a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def last_line(ratio: float) -> str:
    """What the issue asks for."""
    return f"nkisim {ratio:.1f} x torch fp32, one thread"


if __name__ == "__main__":
    sys.exit(compare(int(sys.argv[1])))
