"""What a timeline says of itself."""

import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.machine import TRN2
from nkisim.running.kernel import run
from nkisim.timing import schedule
from nkisim.trace import Trace

pytestmark = pytest.mark.usefixtures("logical_cores_of_one")  # loops on one core

LABEL = "modelled, trn2, constants 3, default reading"


def counted_by_data(count):
    """A loop whose number of iterations is in memory."""
    tile = nl.ndarray((4, 4), nl.float32)
    iterations = nl.ndarray((1, 1), nl.int32)
    nisa.dma_copy(iterations, count)
    register = nisa.register_alloc()
    nisa.register_load(register, iterations)

    def body(_):
        nisa.memset(tile, 0.0)

    nl.fori_loop(0, register, body)


def test_a_loop_of_unknown_length_is_named_in_the_label():
    count = np.array([[3]], np.int32)
    known = run(counted_by_data, count, machine="trn2")
    unknown = run(counted_by_data, count, machine="trn2", values=False)
    assert schedule(known.trace, TRN2).label == LABEL
    label = f"{LABEL}, 1 loop(s) of unknown length counted as one iteration"
    assert schedule(unknown.trace, TRN2).label == label


def test_an_empty_trace_is_bound_by_nothing():
    timeline = schedule(Trace(), TRN2)
    assert (timeline.makespan_ns, timeline.bound, timeline.mfu) == (0, "nothing", 0)
