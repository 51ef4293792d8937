"""A residual of lower resolution, read cell by cell: the bits of one that was spread before."""

from dataclasses import replace

import numpy as np
import pytest

from coarse_cells import spread
from nkisim.machine import TRN2
from repetition import few
from trnconv.algorithms.direct.rules import violations
from trnconv.errors import PlanError
from trnconv.geometry import conv_shape
from trnconv.planner.best import best_plan, only
from trnconv.problem.coarse_residual import CoarseResidual
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.epilogue import AFTER, BEFORE, RELU, Epilogue
from trnconv.runtime import LaunchOptions, convolve_shape, time_plan
from upsampled_calls import MACHINES, whole_arrays

CELLS = {
    "nearest": CoarseResidual(1, 2, 2, 4),
    "rows of two channels": CoarseResidual(1, 2, 2, 2),
    "nearest, frames too": CoarseResidual(2, 2, 2, 8),
    "frames of two channels, the first left out": CoarseResidual(2, 2, 2, 4, skipped=1),
    "frames and rows of four channels": CoarseResidual(2, 2, 2, 2),
}
cells = pytest.mark.parametrize("coarse", CELLS.values(), ids=list(CELLS))


def upsampled(c_in, c_out, frames, size):
    """As after the time convolution of Wan 2.2: frames are there, rows and columns are doubled."""
    filters = (c_out, c_in, 1, 3, 3)
    return conv_shape((1, c_in, frames, *size), filters, padding=(0, 1, 1), upsample=(1, 2, 2))


def both(shape, coarse, end, **options):
    """The output with a coarse residual, and with the same one spread before."""
    x, w, bias, residual = whole_arrays(shape, "bfloat16")
    rng = np.random.default_rng(7)
    low = rng.integers(-9, 9, coarse.sizes(residual.shape)).astype(x.dtype)
    launch = LaunchOptions(epilogue=replace(end, coarse=coarse), residual=low, **options)
    read = convolve_shape([x], w, bias, shape, launch)
    added = np.ascontiguousarray(spread(low, coarse))
    whole = replace(launch, epilogue=end, residual=added, plans=None)
    return read, convolve_shape([x], w, bias, shape, whole)


@cells
@few(2)
@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_it_is_added_as_if_it_had_been_spread(coarse, machine):
    machine, cores = machine
    shape = upsampled(40, 130, 4 - coarse.skipped, (5, 6))
    epilogue = Epilogue(residual=BEFORE)
    read, whole = both(shape, coarse, epilogue, machine=machine, cores=cores)
    np.testing.assert_array_equal(read.y, whole.y)


@pytest.mark.parametrize("epilogue", [Epilogue(RELU, BEFORE), Epilogue(RELU, AFTER)], ids=str)
def test_it_goes_with_an_activation(epilogue):
    read, whole = both(upsampled(40, 130, 2, (5, 6)), CELLS["rows of two channels"], epilogue)
    np.testing.assert_array_equal(read.y, whole.y)
    assert read.y.min() < 0 or epilogue.residual == BEFORE


@cells
def test_in_hardware_loops_each_iteration_reads_its_own_place(coarse):
    """Rows in a loop: offsets into the residual are not those into y, halved."""
    shape = upsampled(128, 128, 4 - coarse.skipped, (24, 16))
    epilogue = Epilogue(residual=BEFORE, coarse=coarse)
    plan = best_plan(only(ConvProblem(shape, TRN2, epilogue=epilogue), "direct")).plan
    looped = plan.but(rows=8, looped=True)
    assert not violations(looped)
    read, whole = both(shape, coarse, Epilogue(residual=BEFORE), plans=(looped,))
    np.testing.assert_array_equal(read.y, whole.y)


def test_another_channel_would_be_noticed():
    """The same plan with cells of other channels gives other outputs."""
    shape, coarse = upsampled(40, 130, 2, (5, 6)), CELLS["nearest"]
    x, w, bias, _ = whole_arrays(shape, "bfloat16")
    low = np.random.default_rng(3).integers(-9, 9, (1, 260, 2, 5, 6)).astype(x.dtype)
    epilogue = Epilogue(residual=BEFORE, coarse=CELLS["rows of two channels"])
    right = convolve_shape([x], w, bias, shape, LaunchOptions(epilogue=epilogue, residual=low)).y
    epilogue = replace(epilogue, coarse=coarse)
    first = np.ascontiguousarray(low[:, :130])
    wrong = convolve_shape([x], w, bias, shape, LaunchOptions(epilogue=epilogue, residual=first)).y
    assert (right != wrong).mean() > 0.5


def test_it_moves_fewer_bytes():
    shape = upsampled(512, 512, 4, (44, 80))
    problem = only(ConvProblem(shape, TRN2, epilogue=Epilogue(residual=BEFORE)), "direct")
    plain = best_plan(problem)
    coarse = best_plan(
        replace(problem, epilogue=replace(problem.epilogue, coarse=CELLS["nearest"]))
    )
    y_bytes = 512 * 4 * 88 * 160 * 2
    assert plain.cost.hbm_bytes - coarse.cost.hbm_bytes == pytest.approx(y_bytes / 2, rel=0.01)


def test_its_price_is_that_of_the_schedule():
    shape = upsampled(256, 256, 2, (44, 80))
    epilogue = Epilogue(residual=BEFORE, coarse=CELLS["rows of two channels"])
    priced = best_plan(only(ConvProblem(shape, TRN2, epilogue=epilogue), "direct"))
    assert time_plan(priced.plan).makespan_ns == pytest.approx(priced.cost.total_ns, rel=0.1)


@pytest.mark.parametrize(
    ("shape", "coarse", "why"),
    [
        (upsampled(40, 130, 2, (5, 6)), CoarseResidual(1, 2, 2, 1), "different channels"),
        (upsampled(40, 130, 2, (5, 6)), CoarseResidual(1, 1, 3, 3), "not in such phases"),
        (conv_shape((1, 40, 2, 6, 6), (130, 40, 1, 3, 3)), CELLS["nearest"], "phases"),
    ],
    ids=["unreadable", "other cells", "not upsampled"],
)
def test_what_no_kernel_reads_is_refused_in_words(shape, coarse, why):
    with pytest.raises(PlanError, match=why):
        best_plan(ConvProblem(shape, TRN2, epilogue=Epilogue(residual=BEFORE, coarse=coarse)))
