"""How fast nkisim itself runs on this computer: `python -m nkisim bench`.

Three figures, each the best of five after a warm-up, on one thread of one process: a matrix
product with values, as a multiple of the time of NumPy's own; a shape-only run, and the schedule of
its trace, in instructions per second. They say nothing about the time a kernel takes on a device.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.machine import TRN2
from nkisim.numerics.dtypes import from_float32, to_host
from nkisim.running.host_arrays import Spec
from nkisim.running.kernel import run
from nkisim.timing import schedule
from nkisim.trace import Trace

_THREAD_VARIABLES: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_REPEATS: Final = 5

_SIDE_TILES: Final = 16  # partitions times this is the side of the product with values
_SIDE_BANKS: Final = 4  # its columns in PSUM banks: all of b stays in SBUF
_DEEP_TILES: Final = 64  # contraction of the shape-only product, in tiles
_DEEP_BANKS: Final = 2  # columns of b that fit SBUF at that depth, in PSUM banks
_PANELS: Final = 8  # of that many columns
_ROW_TILES: Final = 130  # with the three above: 204,352 instructions
_MILLION_ROW_TILES: Final = 640  # ... and 1,004,032


def matmul_kernel(a_t: Any, b: Any, banks: int) -> Any:
    """transpose(a_t) @ b for a_t [K, M], b [K, N]: a panel of b stays in SBUF, a_t streams by."""
    side, width = nl.tile_size.pmax, nl.tile_size.psum_bank_fmax
    deep, rows, columns = a_t.shape[0] // side, a_t.shape[1], b.shape[1]
    out = nl.ndarray((rows, columns), dtype=a_t.dtype, buffer=nl.shared_hbm)
    for left in range(0, columns, banks * width):
        panel = nl.ndarray((side, deep, banks * width), dtype=b.dtype)
        for k in range(deep):
            right = left + banks * width
            nisa.dma_copy(panel[:, k, :], b[k * side : (k + 1) * side, left:right])
        for top in range(0, rows, side):
            strip = nl.ndarray((side, deep, side), dtype=a_t.dtype)
            for k in range(deep):
                nisa.dma_copy(strip[:, k, :], a_t[k * side : (k + 1) * side, top : top + side])
            for bank in range(banks):
                first = bank * width
                total = nl.ndarray((side, width), dtype=nl.float32, buffer=nl.psum)
                for k in range(deep):
                    nisa.nc_matmul(total, strip[:, k, :], panel[:, k, first : first + width])
                block = nl.ndarray((side, width), dtype=a_t.dtype)
                nisa.tensor_copy(block, total)
                at = left + first
                nisa.dma_copy(out[top : top + side, at : at + width], block)
    return out


def product_ratio(side_tiles: int = _SIDE_TILES) -> float:
    """Seconds of a bf16 product with values through nkisim, per second of one float32 matmul."""
    side = side_tiles * TRN2.partitions
    rng = np.random.default_rng(0)
    a, b = (_rounded(rng.standard_normal((side, side), np.float32)) for _ in range(2))
    a_wide, b_wide = a.astype(np.float32), b.astype(np.float32)
    banks = min(_SIDE_BANKS, side // TRN2.psum_bank_fp32_elems)
    simulated, plain = best_seconds(
        lambda: run(matmul_kernel, a, b, banks, machine=TRN2),
        lambda: np.matmul(a_wide.T, b_wide),
    )
    return simulated / plain


def _rounded(values: Any) -> Any:
    return to_host(from_float32(values, "bfloat16"), "bfloat16")


def shape_only_rate(
    row_tiles: int = _ROW_TILES, *, deep_tiles: int = _DEEP_TILES, panels: int = _PANELS
) -> tuple[int, float]:
    """Instructions of a shape-only product, and how many are run in a second."""
    start = time.perf_counter()
    trace = _shape_only_trace(row_tiles, deep_tiles, panels)
    seconds = time.perf_counter() - start
    count = trace.static_count
    return count, count / seconds


def schedule_rate(
    row_tiles: int = _ROW_TILES, *, deep_tiles: int = _DEEP_TILES, panels: int = _PANELS
) -> tuple[int, float]:
    """Instructions of the same product, and how many are scheduled in a second."""
    trace = _shape_only_trace(row_tiles, deep_tiles, panels)
    start = time.perf_counter()
    schedule(trace, TRN2)
    seconds = time.perf_counter() - start
    count = trace.static_count
    return count, count / seconds


def _shape_only_trace(row_tiles: int, deep_tiles: int, panels: int) -> Trace:
    side = TRN2.partitions
    columns = panels * _DEEP_BANKS * TRN2.psum_bank_fp32_elems
    a_t = Spec((deep_tiles * side, row_tiles * side), "bfloat16")
    b = Spec((deep_tiles * side, columns), "bfloat16")
    return run(matmul_kernel, a_t, b, _DEEP_BANKS, machine=TRN2, values=False).trace


def best_seconds(*works: Callable[[], object]) -> list[float]:
    """The shortest run of each after one that does not count; they take turns.

    A computer's speed drifts: what is compared has to be timed side by side.
    """
    for work in works:
        work()
    best = [float("inf")] * len(works)
    for _ in range(_REPEATS):
        for position, work in enumerate(works):
            start = time.perf_counter()
            work()
            best[position] = min(best[position], time.perf_counter() - start)
    return best


def last_line(ratio: float, rate: float, scheduled: float) -> str:
    """The three figures in one line."""
    run_rate = f"values {ratio:.2f} x np.matmul, shape-only {rate:.0f} instructions/s"
    return f"{run_rate}, scheduled {scheduled:.0f} instructions/s"


def main(*, million: bool = False) -> int:
    """Print the figures, from a process whose BLAS has one thread."""
    if any(os.environ.get(name) != "1" for name in _THREAD_VARIABLES):
        return _on_one_thread(million=million)
    ratio = product_ratio()
    side = _SIDE_TILES * TRN2.partitions
    print(f"bf16 product {side} x {side} x {side} with values: {ratio:.2f} x float32 np.matmul")
    shape_only_rate()
    count, rate = max((shape_only_rate() for _ in range(_REPEATS)), key=lambda result: result[1])
    print(f"shape-only product of {count} instructions: {rate:.0f} instructions/s")
    count, scheduled = max((schedule_rate() for _ in range(_REPEATS)), key=lambda pair: pair[1])
    print(f"schedule of {count} instructions: {scheduled:.0f} instructions/s")
    if million:
        count, million_rate = shape_only_rate(_MILLION_ROW_TILES)
        print(f"shape-only product of {count} instructions: {million_rate:.0f} instructions/s,")
        print(f"  peak resident memory {peak_resident_mebibytes():.0f} MiB")
        count, million_rate = schedule_rate(_MILLION_ROW_TILES)
        print(f"schedule of {count} instructions: {million_rate:.0f} instructions/s,")
        print(f"  peak resident memory with its trace {peak_resident_mebibytes():.0f} MiB")
    print(last_line(ratio, rate, scheduled))
    return 0


def peak_resident_mebibytes() -> float:
    """The most memory this process has had."""
    import resource  # noqa: PLC0415 (Unix only, and the rest of the bench is not)

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    unit_bytes = 1 if sys.platform == "darwin" else 1024
    return peak * unit_bytes / 2**20


def _on_one_thread(*, million: bool) -> int:
    """BLAS reads its variables when it is loaded, so they need a process of their own."""
    command = [sys.executable, "-m", "nkisim", "bench", *(["--million"] if million else [])]
    environment = {**os.environ, **dict.fromkeys(_THREAD_VARIABLES, "1")}
    return subprocess.run(command, env=environment, check=False).returncode  # noqa: S603 (this interpreter)
