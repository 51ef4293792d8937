"""Buffers of a minimal plan: how weights are held, and slots for inputs that SBUF has room for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from trnconv.forms.minimal.channels import out_channels
from trnconv.forms.minimal.plan import MinimalPlan
from trnconv.forms.minimal.sbuf import room_of, sbuf_end
from trnconv.forms.minimal.tempo import Tempo, broken_tempo, tempo_of

_MOST_BODY = 6  # blocks after which slots repeat
_STREAM_SLOTS = (12, 8, 5)
_LATE_STREAM_SLOTS = (8, 5, 4, 3)  # where inputs are loaded tile by tile


def with_buffers(sized: MinimalPlan) -> Iterator[MinimalPlan]:
    """The first two ways to hold weights that leave room for inputs, each with its buffers.

    In this order: weights of all tiles of output channels stay, those of half the tiles at a time
    (then inputs are read twice), or they are streamed, through fewer and fewer slots.
    """
    tiles = len(out_channels(sized))
    ways = [(tiles, 0), *((tiles, slots) for slots in _STREAM_SLOTS)]
    if sized.x_tiles:
        ways = [(tiles, slots) for slots in _LATE_STREAM_SLOTS]
    elif tiles > 1 and sized.end.norm is None:
        ways.insert(1, (-(-tiles // 2), 0))
    found = 0
    for group, streamed in ways:
        weights = sized.but(group=group, streamed=streamed)
        plan = _roomiest(weights)
        if plan is not None:
            yield plan
            found += 1
        if found == 2:
            return


@lru_cache(maxsize=30_000)  # every budget of a graph asks again
def _roomiest(plan: MinimalPlan) -> MinimalPlan | None:
    """With the first of `_slot_counts` that SBUF has room for; None if it has for none."""
    limit = plan.target.sbuf_usable_bytes_per_partition
    room = room_of(plan)
    for body, v_slots, x_slots in _slot_counts(tempo_of(plan)):
        if room.needed(v_slots, x_slots) <= limit:
            one = plan.but(body_blocks=body, v_slots=v_slots, x_slots=x_slots)
            if sbuf_end(one) <= limit:
                return one
    return None


@lru_cache(maxsize=1024)
def _slot_counts(tempo: Tempo) -> list[tuple[int, int, int]]:
    """Blocks of a body, slots of transformed inputs and of inputs, in the order to be tried.

    First the fewest slots of transformed inputs, and with those the most slots of inputs.
    """
    frames = tempo.block_frames
    found: dict[tuple[int, int], int] = {}  # least body for each pair of slots
    for body in range(1, _MOST_BODY + 1):
        for v_slots in _divisors(body * tempo.tiles_of_block):
            for x_slots in _divisors(body * frames) if tempo.loads_ahead else (tempo.tile_frames,):
                small = (v_slots, x_slots) not in found and x_slots <= 2 * frames
                if small and not broken_tempo(tempo, body, v_slots, x_slots):
                    found[v_slots, x_slots] = body
    least = min((v for v, _ in found), default=0)
    ordered = sorted(found, key=lambda pair: (pair[0], -pair[1]))
    return [(found[pair], *pair) for pair in ordered if pair[0] <= 2 * least]


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
