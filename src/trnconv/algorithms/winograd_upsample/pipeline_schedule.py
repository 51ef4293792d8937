"""In which order frames of blocks are loaded and made differences of, and in which slots."""

from __future__ import annotations

from trnconv.algorithms.winograd_upsample.blocks import frame_reads
from trnconv.algorithms.winograd_upsample.plan import UpsamplePlan
from trnconv.algorithms.winograd_upsample.recipe import FrameUnit, SpanPrepare
from trnconv.algorithms.winograd_upsample.sbuf import X_SLOTS, v_slots

PipelineSchedule = tuple[tuple[SpanPrepare, ...], int, tuple[FrameUnit, ...]]


def pipeline_schedule(plan: UpsamplePlan, blocks: int) -> PipelineSchedule:
    """What is prepared, how much of it before the first unit, and the units of so many blocks.

    Differences are made during the unit before the first that reads them, in a slot that neither
    of the two reads.
    """
    reads = [[frame for frame, _ in taps] for taps in frame_reads(plan.shape)]
    wanted = [[(block, frame) for frame in frames] for block in range(blocks) for frames in reads]
    held: dict[tuple[int, int], int] = {}
    prepares: list[SpanPrepare] = []
    units = []
    begun = 0
    for number, needed in enumerate(wanted):
        if number == 0:
            _hold(plan, needed, [], held, prepares)
            begun = len(prepares)
        slots = tuple(held[frame] for frame in needed)
        if number + 1 < len(wanted):
            _hold(plan, wanted[number + 1], needed, held, prepares)
        units.append(FrameUnit(*divmod(number, len(reads)), slots, len(prepares)))
    return tuple(prepares), begun, tuple(units)


def _hold(
    plan: UpsamplePlan,
    needed: list[tuple[int, int]],
    busy: list[tuple[int, int]],
    held: dict[tuple[int, int], int],
    prepares: list[SpanPrepare],
) -> None:
    """Find slots for what is not held yet, among those that nobody reads now or next."""
    for frame in needed:
        if frame in held:
            continue
        kept = {held[other] for other in (*needed, *busy) if other in held}
        slot = next(number for number in range(v_slots(plan)) if number not in kept)
        for other in [other for other, its in held.items() if its == slot]:
            del held[other]
        held[frame] = slot
        prepares.append(SpanPrepare(*frame, len(prepares) % X_SLOTS, slot))
