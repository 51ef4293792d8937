"""Buffers of a Winograd plan: how weights are held, and slots for inputs that SBUF has room for."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from trnconv.algorithms.winograd.channels import out_channels
from trnconv.algorithms.winograd.pipeline_schedule import (
    PipelineSchedule,
    pipeline_schedule,
    violated_slots,
)
from trnconv.algorithms.winograd.plan import WinogradPlan
from trnconv.algorithms.winograd.sbuf import room_of, sbuf_end

_MOST_BODY = 6  # blocks after which slots repeat
_STREAM_SLOTS = (12, 8, 5)
_LATE_STREAM_SLOTS = (8, 5, 4, 3)  # where inputs are loaded tile by tile


def with_buffers(sized: WinogradPlan) -> Iterator[WinogradPlan]:
    """The first two ways to hold weights that leave room for inputs, each with its buffers.

    In this order: weights of all tiles of output channels stay, those of half the tiles at a time
    (then inputs are read twice), or they are streamed, through fewer and fewer slots.
    """
    tiles = len(out_channels(sized))
    ways = [(tiles, 0), *((tiles, slots) for slots in _STREAM_SLOTS)]
    if sized.x_tiles:
        ways = [(tiles, slots) for slots in _LATE_STREAM_SLOTS]
    elif tiles > 1 and sized.epilogue.norm is None:
        ways.insert(1, (-(-tiles // 2), 0))
    yielded = 0
    for group, streamed in ways:
        weights = sized.but(group=group, streamed=streamed)
        plan = _roomiest(weights)
        if plan is not None:
            yield plan
            yielded += 1
        if yielded == 2:
            return


@lru_cache(maxsize=30_000)  # every budget of a graph asks again
def _roomiest(plan: WinogradPlan) -> WinogradPlan | None:
    """With the first of `_slot_counts` that SBUF has room for; None if it has for none."""
    limit = plan.machine.sbuf_usable_bytes_per_partition
    room = room_of(plan)
    for body, v_slots, x_slots in _slot_counts(pipeline_schedule(plan)):
        if room.needed(v_slots, x_slots) <= limit:
            one = plan.but(body_blocks=body, v_slots=v_slots, x_slots=x_slots)
            if sbuf_end(one) <= limit:
                return one
    return None


@lru_cache(maxsize=1024)
def _slot_counts(pipeline: PipelineSchedule) -> list[tuple[int, int, int]]:
    """Blocks of a body, slots of transformed inputs and of inputs, in the order to be tried.

    First the fewest slots of transformed inputs, and with those the most slots of inputs.
    """
    frames = pipeline.block_frames
    least_body: dict[tuple[int, int], int] = {}  # least body for each pair of slots
    for body in range(1, _MOST_BODY + 1):
        for v_slots in _divisors(body * pipeline.tiles_of_block):
            for x_slots in (
                _divisors(body * frames) if pipeline.loads_ahead else (pipeline.tile_frames,)
            ):
                small = (v_slots, x_slots) not in least_body and x_slots <= 2 * frames
                if small and not violated_slots(pipeline, body, v_slots, x_slots):
                    least_body[v_slots, x_slots] = body
    least = min((v for v, _ in least_body), default=0)
    ordered = sorted(least_body, key=lambda pair: (pair[0], -pair[1]))
    return [(least_body[pair], *pair) for pair in ordered if pair[0] <= 2 * least]


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
