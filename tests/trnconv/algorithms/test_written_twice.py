"""What the page says about tensors that kernels write more than once, against runs in nkisim."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

import nkisim
import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.machine import TRN2
from repetition import slow_beyond
from strict_plans import strict_case
from trnconv.geometry import conv_shape
from trnconv.planner.best import searched_plan
from trnconv.planner.table import ALGORITHMS
from trnconv.problem.conv_problem import WEIGHT_GRADIENT, ConvProblem
from trnconv.problem.epilogue import BEFORE, Epilogue
from trnconv.runtime.launch import trace_plan
from written_twice import ADDED, AGAIN, IN_PLACE, written_twice

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "on-a-device.md"
RANDOM_PLANS = (48, 100)  # 45 have everything that the table says; more may have what it does not
MEMORIES = {"psum": "PSUM", "sbuf": "SBUF", "shared_hbm": "HBM"}
LARGER = (
    ConvProblem(
        conv_shape((1, 300, 3, 20, 40), (300, 1, 3, 3, 3), padding=1, groups=300),
        TRN2,
        algorithms=("depthwise",),
    ),
    ConvProblem(
        conv_shape((1, 96, 4, 40, 48), (96, 96, 3, 3, 3), padding=(0, 1, 1)),
        TRN2,
        direction=WEIGHT_GRADIENT,
    ),
    ConvProblem(
        conv_shape((12, 130, 1, 6, 24), (64, 130, 1, 3, 3), padding=(0, 1, 1), upsample=(1, 2, 2)),
        TRN2,
        epilogue=Epilogue(residual=BEFORE),
        budget=300,  # a hardware loop
        algorithms=("winograd_upsample",),
    ),
)


def table_of_the_page():
    """By kernel, the columns that say yes."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    first = next(at for at, line in enumerate(lines) if line.startswith("| kernel |"))
    names = cells(lines[first])[1:]
    rows = [cells(line) for line in lines[first + 2 : first + 2 + len(ALGORITHMS)]]
    assert all(set(row[1:]) <= {"yes", "no"} for row in rows)
    return {
        kernel: {name for name, said in zip(names, answers, strict=True) if said == "yes"}
        for kernel, *answers in rows
    }


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize("count", slow_beyond(1, RANDOM_PLANS))
def test_the_page_lists_what_runs_write_more_than_once(count):
    found = defaultdict(set)
    plans = [strict_case(number).plan for number in range(count)]
    for plan in (*plans, *(searched_plan(problem).plan for problem in LARGER)):
        pairs = written_twice(trace_plan(plan).trace)
        found[plan.algorithm] |= {f"{MEMORIES[memory]}: {how}" for memory, how in pairs}
    assert found == table_of_the_page()
    assert set(found) == {algorithm.name for algorithm in ALGORITHMS}


def once(x):
    """Nothing is written twice: halves of one tile, side by side."""
    tile = nl.ndarray((8, 8), nl.float32)
    nisa.dma_copy(tile[:, 0:4], x[:, 0:4])
    nisa.dma_copy(tile[:, 4:8], x[:, 4:8])
    out = nl.ndarray((8, 8), nl.float32, nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


def twice(x):
    """One of every kind."""
    tile = nl.ndarray((8, 8), nl.float32)
    nisa.dma_copy(tile, x)
    nisa.dma_copy(tile[:, 0:1], x[:, 1:2])
    nisa.tensor_scalar(tile, tile, nl.add, 1.0)
    sums = nl.ndarray((8, 8), nl.float32, nl.psum)
    for number in range(2):
        nisa.nc_matmul(sums, tile, tile, accumulate=number > 0)
    out = nl.ndarray((8, 8), nl.float32, nl.shared_hbm)
    done = nl.ndarray((8, 8), nl.float32)
    nisa.tensor_copy(done, sums)
    nisa.dma_copy(out, done)
    nisa.dma_copy(out[0:1, :], done[0:1, :])
    return out


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (once, set()),
        (
            twice,
            {("sbuf", AGAIN), ("sbuf", IN_PLACE), ("psum", ADDED), ("shared_hbm", AGAIN)},
        ),
    ],
)
def test_what_counts(kernel, expected):
    run = nkisim.run(kernel, np.ones((8, 8), np.float32), machine="trn2", lnc=1)
    assert written_twice(run.trace) == expected
