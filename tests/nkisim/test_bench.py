"""The bench: its kernel is right, its sizes are what it says, its last line has a form."""

import re

import numpy as np
import pytest

from nkisim import bench
from nkisim.running.host_arrays import Spec
from nkisim.running.kernel import run


def test_the_kernel_multiplies():
    rng = np.random.default_rng(1)
    a_t = rng.integers(-4, 5, (256, 128)).astype(np.float32)  # exact in float32 in any order
    b = rng.integers(-4, 5, (256, 1024)).astype(np.float32)
    for banks in (1, 2):
        result = run(bench.matmul_kernel, a_t, b, banks, machine="trn2")
        np.testing.assert_array_equal(result.outputs, a_t.T @ b)


def test_the_shape_only_product_is_long_and_fits_sbuf():
    deep, panels, banks = bench._DEEP_TILES, bench._PANELS, bench._DEEP_BANKS
    per_row_tile = deep + banks * (deep + 2)  # loads, and per bank matmuls, eviction and store
    assert panels * (deep + bench._ROW_TILES * per_row_tile) >= 200_000
    assert panels * (deep + bench._MILLION_ROW_TILES * per_row_tile) >= 1_000_000
    count, rate = bench.shape_only_rate(row_tiles=2, panels=1)
    assert count == deep + 2 * per_row_tile
    assert rate > 0
    shapes = Spec((deep * 128, 256), "bfloat16"), Spec((deep * 128, 1024), "bfloat16")
    memory = run(bench.matmul_kernel, *shapes, banks, machine="trn2", values=False).memory
    # The panel, the strip and a block of one bank, 2 bytes an element.
    assert memory.sbuf_peak_bytes_per_partition == 2 * (64 * 1024 + 64 * 128 + 512)


def test_the_schedule_is_of_the_same_product():
    sizes = {"row_tiles": 1, "deep_tiles": 2, "panels": 1}
    assert bench.schedule_rate(**sizes)[0] == bench.shape_only_rate(**sizes)[0]


def test_the_ratio_is_a_positive_number():
    assert bench.product_ratio(side_tiles=4) > 0


def test_the_last_line_has_two_decimals_and_whole_instructions():
    line = bench.last_line(2.7449, 48497.6, 30000.4)
    assert line == (
        "values 2.74 x np.matmul, shape-only 48498 instructions/s, scheduled 30000 instructions/s"
    )


def test_the_best_of_five_after_a_warm_up_taking_turns():
    calls = []
    best = bench.best_seconds(lambda: calls.append("a"), lambda: calls.append("b"))
    assert len(best) == 2
    assert min(best) >= 0
    assert "".join(calls) == "ab" * 6


@pytest.mark.parametrize("million", [False, True])
def test_the_report_ends_with_the_last_line(million, monkeypatch, capsys):
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    small = bench.shape_only_rate(row_tiles=1, deep_tiles=2, panels=1)
    monkeypatch.setattr(bench, "product_ratio", lambda: 1.5)
    monkeypatch.setattr(bench, "shape_only_rate", lambda *_: small)
    monkeypatch.setattr(bench, "schedule_rate", lambda *_: small)
    assert bench.main(million=million) == 0
    lines = capsys.readouterr().out.splitlines()
    rates = r"shape-only \d+ instructions/s, scheduled \d+ instructions/s"
    form = r"values \d+\.\d\d x np\.matmul, " + rates
    assert re.fullmatch(form, lines[-1])
    assert any("peak resident memory" in line for line in lines) == million


def test_blas_gets_one_thread_in_a_process_of_its_own(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    started = []

    class Finished:
        returncode = 7

    def start(command, *, env, check):
        started.append((command[1:], env["OMP_NUM_THREADS"], env["OPENBLAS_NUM_THREADS"]))
        return Finished

    monkeypatch.setattr(bench.subprocess, "run", start)
    assert bench.main(million=True) == 7
    assert started == [(["-m", "nkisim", "bench", "--million"], "1", "1")]
