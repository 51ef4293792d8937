"""SBUF that is handed out."""

from dataclasses import replace

import pytest

from nkisim.machine import TRN2
from trnconv.algorithms.sbuf_space import SbufSpace

LEFT_TO_THE_COMPILER = replace(TRN2, accepts=replace(TRN2.accepts, fixed_addresses=False))


def test_slots_are_aligned_and_follow_one_another():
    space = SbufSpace(TRN2, 64)
    first, nothing, second = space.ring(3, 33, 2), space.ring(0, 100, 4), space.ring(1, 16, 4)
    assert (first.address, first.slots, first.elems, first.pitch) == (0, 3, 33, 128)
    assert (nothing.slots, nothing.address) == (0, 3 * 128)
    assert (second.address, second.pitch) == (3 * 128, 64)
    assert space.taken == space.at == 3 * 128 + 64


@pytest.mark.parametrize("align", [4, 64])
def test_what_is_taken_does_not_depend_on_who_places_tiles(align):
    ours, theirs = SbufSpace(TRN2, align), SbufSpace(LEFT_TO_THE_COMPILER, align)
    for space in (ours, theirs):
        space.ring(2, 33, 2)
    assert ours.taken == theirs.taken == 2 * (68 if align == 4 else 128)
    assert theirs.ring(1, 1, 4).address < 0
