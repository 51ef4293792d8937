"""Stage 1: probes. One problem each, exact integers, three runs with other data each."""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from trnconv.bringup.ladder import GREEN, OFF, RED, Bench, Check, Finding
from trnconv.bringup.probes.dma import ADDRESS, COPY, MOVING
from trnconv.bringup.probes.engines import ENGINES, MATMUL
from trnconv.bringup.probes.launches import LAUNCHES, ROTATED, TWO_CORES
from trnconv.bringup.probes.loops import LOOPS, STALLING
from trnconv.bringup.probes.probe import Arrays, Probe

STAGE: Final = 1
SEEDS: Final = (1, 2, 3)  # other data each time: a result that is left from before is noticed
PROBES: Final = (
    COPY,
    MATMUL,
    *LAUNCHES,
    ADDRESS,
    ROTATED,
    *MOVING,
    *ENGINES,
    *LOOPS,
    *TWO_CORES,
    STALLING,  # last: it may hang
)


def checks() -> tuple[Check, ...]:
    """A check for each probe."""
    return tuple(
        Check(
            STAGE,
            probe.name,
            probe.asks,
            partial(ask, probe),
            probe.workaround,
            notes=probe.notes,
            void_with=probe.void_with,
        )
        for probe in PROBES
    )


def ask(probe: Probe, bench: Bench) -> Finding:
    """Run a probe on data of three seeds and compare, bit for bit."""
    if probe.on_two_cores and bench.cores == 1:
        return Finding(OFF, "a logical core of one: there is nothing to ask")
    for seed in SEEDS:
        arrays = probe.given(seed)
        args = (*arrays, *probe.constants)
        results = bench.runner.call(probe.kernel, args, legalised=probe.legalised)
        wrong = difference(results, probe.expected(*arrays))
        if wrong:
            return Finding(RED, f"run {seed}: {wrong}")
    return Finding(GREEN, f"{len(SEEDS)} runs equal")


def difference(results: Arrays, expected: Arrays) -> str:
    """Where results are not what they should be, in words; empty if they are."""
    if len(results) != len(expected):
        return f"{len(results)} results, {len(expected)} expected"
    for number, (result, other) in enumerate(zip(results, expected, strict=True)):
        if result.shape != other.shape:
            return f"result {number} has shape {result.shape}, {other.shape} expected"
        got, wanted = result.astype(np.float64), other.astype(np.float64)
        unequal = ~((got == wanted) | (np.isnan(got) & np.isnan(wanted)))
        if unequal.any():
            at = tuple(int(index) for index in np.argwhere(unequal)[0])
            return (
                f"result {number} has {int(unequal.sum())} of {unequal.size} values wrong, the"
                f" first at {at}: {got[at]:g} instead of {wanted[at]:g}"
            )
    return ""
