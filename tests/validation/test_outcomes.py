"""A row is modelled as its figure was made: with launch or without, as a slope, on two cores."""

import ml_dtypes  # noqa: F401 (dtypes of Specs)
import pytest

import nkisim
from nkisim import Kernel, Spec
from nkisim.machine import TRN2, Reading
from validation.launch_time import launch_time
from validation.outcome import model
from validation.stream import stream_of
from validation_rows import outcome_of, row_of

nkisim.install()

import nki.isa as nisa
import nki.language as nl


def test_an_interval_is_sorted_and_holds_the_default():
    assert outcome_of(1, 5, 3, 4).modelled.interval_us == (3, 5)


def test_a_row_is_timed_in_three_readings():
    modelled = model(row_of(20))
    assert modelled.optimistic_us < modelled.default_us < modelled.pessimistic_us
    without = model(row_of(20, includes_launch=False))
    launch_us = TRN2.timing.launch_ns / 1e3
    assert modelled.default_us - without.default_us == pytest.approx(launch_us)


def test_a_stated_launch_replaces_the_machines_in_every_reading():
    without = model(row_of(20, includes_launch=False))
    stated = model(row_of(20, launch_us=140.0))
    for name in ("optimistic_us", "default_us", "pessimistic_us"):
        assert getattr(stated, name) == pytest.approx(getattr(without, name) + 140)


def test_a_stated_launch_is_not_added_where_the_figure_has_none():
    without = model(row_of(20, includes_launch=False, launch_us=140.0))
    assert without == model(row_of(20, includes_launch=False))


def copies(x, repeats, columns):
    """`repeats` times the same copy on the Vector engine, after a load and before a store."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    for _ in range(repeats):
        nisa.tensor_copy(dst=tile[:, 0:columns], src=tile[:, 0:columns], engine=nisa.vector_engine)
    nisa.dma_copy(dst=y, src=tile)
    return y


def test_a_slope_is_what_one_more_takes():
    asked = {
        "kernel": copies,
        "arguments": (Spec((128, 512), "float32"),),
        "machine": "trn1",
        "options": {"columns": 512},
    }
    slope = model(row_of(1, repeats=10, **asked)).default_us
    few, many = (
        model(row_of(1, **{**asked, "options": {"columns": 512, "repeats": n}})).default_us
        for n in (10, 20)
    )
    assert slope == pytest.approx((many - few) / 10)
    assert slope < 0.2 * few  # loads, stores and launch are not in it


def unequal(x):
    """Core 0 copies one row, core 1 eight."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    first, rows = (0, 1) if nl.program_id(0) == 0 else (1, 8)
    for row in range(first, first + rows):
        tile = nl.ndarray((1, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[row : row + 1, :])
        nisa.dma_copy(dst=y[row : row + 1, :], src=tile)
    return y


def test_a_launch_on_two_cores_ends_with_the_slower_one():
    stream = stream_of(
        row_of(1, kernel=unequal, arguments=(Spec((9, 64), "float32"),), options={}, cores=2)
    )
    (run,) = stream.runs
    assert len(run.traces) == 2
    alone = nkisim.run(Kernel(unequal)[2], Spec((9, 64), "float32"), machine="trn2", values=False)
    slow = nkisim.timing.schedule(alone.traces[1], TRN2).makespan_ns
    fast = nkisim.timing.schedule(alone.traces[0], TRN2).makespan_ns
    assert fast < slow <= launch_time(run, TRN2, Reading.default).makespan_ns
