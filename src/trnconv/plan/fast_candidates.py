"""Fast plans worth pricing, by transform and axis."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf

from nkisim.machine import Machine
from trnconv.geometry import ConvShape
from trnconv.plan.ends import PLAIN_END, End
from trnconv.plan.fast_blocks import can_be_even
from trnconv.plan.fast_channels import in_channels, out_channels
from trnconv.plan.fast_cost import FastEstimate, estimate, least_ns, least_rolled_ns
from trnconv.plan.fast_memory import room_of, sbuf_end
from trnconv.plan.fast_plan import DEPTH, HEIGHT, V_BYTES, WIDTH, FastPlan
from trnconv.plan.fast_schedule import Tempo, broken_tempo, tempo_of

_MOST_ROWS = 32
_EVERY_SIZE = 8  # larger blocks are tried in steps
_V_SHARE = 0.75  # of SBUF, for transformed inputs
_MOST_COLUMN_CUTS = 8
_MOST_UNITS = 8
_MOST_BODY = 6
_STREAM_SLOTS = (12, 8, 5)
_BODY_NS = 300_000.0  # a turn of a hardware loop that long hides what the turn itself costs
_KEPT = 4  # plans; sizes that cannot be among the fastest so many are not looked at


@dataclass(frozen=True)
class FastRequest:
    """What is to be planned."""

    shape: ConvShape
    machine: Machine
    dtype: str
    end: End = PLAIN_END
    pieces: tuple[int, ...] = ()
    anchors: tuple[int, int] = (0, 0)  # absolute frame and row of the first output
    midgroup: bool = True


@dataclass(frozen=True)
class PricedFast:
    """A legal plan and its cost."""

    plan: FastPlan
    cost: FastEstimate


def fast_candidates(request: FastRequest, transform: str, axis: int) -> Iterator[FastPlan]:
    """Legal unrolled plans of one transform along one axis."""
    shape = request.shape
    base = FastPlan(
        shape,
        request.machine.name,
        request.dtype,
        transform,
        axis,
        1,
        1,
        1,
        1,
        1,
        1,
        pieces=request.pieces,
        anchor=request.anchors[axis],
        midgroup=request.midgroup,
        end=request.end,
    )
    best: list[float] = []
    for least, sized in _sizes(base):
        if len(best) >= _KEPT and least > best[_KEPT - 1]:
            return
        for plan in _with_buffers(sized):
            yield plan
            insort(best, estimate(plan).weighed_ns)


@lru_cache(maxsize=64)
def _sizes(base: FastPlan) -> list[tuple[float, FastPlan]]:
    """Sizes of blocks with what each takes at least, the most promising first."""
    paired = (False, True) if _can_pair(base) else (False,)
    sizes = [
        replace(base, units=units, rows=rows, columns=columns, paired_rows=pair)
        for rows in _row_counts(base)
        for columns in _column_counts(base)
        if _sensible(base, rows, columns)
        for units in _unit_counts(base)
        for pair in paired
    ]
    return sorted(((least_ns(one), one) for one in sizes), key=lambda pair: pair[0])


def _sensible(plan: FastPlan, rows: int, columns: int) -> bool:
    """Whether a block fills half a PSUM bank, and its transformed inputs leave room in SBUF."""
    shape, machine = plan.shape, plan.target
    tiles = rows // plan.m if plan.by_rows else rows
    whole = columns == shape.out_size(WIDTH) and rows >= shape.out_size(HEIGHT)
    if not whole and 2 * tiles * columns < machine.psum_bank_fp32_elems:
        return False
    slots = 2 * plan.read_frames * -(-shape.c_in // machine.partitions)
    v_rows = tiles if plan.by_rows else rows + shape.kernel[HEIGHT] - 1
    held = slots * plan.algorithm.products * v_rows * columns * V_BYTES
    return held <= _V_SHARE * machine.sbuf_usable_bytes_per_partition


def _can_pair(plan: FastPlan) -> bool:
    wide = replace(plan, columns=plan.shape.out_size(WIDTH), paired_rows=True)
    return len(in_channels(wide)) > len(in_channels(replace(wide, paired_rows=False)))


def _unit_counts(plan: FastPlan) -> list[int]:
    total = plan.tiles if plan.axis == DEPTH else plan.shape.out_size(DEPTH)
    counts = [n for n in range(1, min(total, _MOST_UNITS) + 1) if total % n == 0]
    return list(dict.fromkeys((counts[-1], counts[len(counts) // 2], counts[0])))[:2]


def _row_counts(plan: FastPlan) -> list[int]:
    total = plan.shape.out_size(HEIGHT)
    if plan.axis == HEIGHT:
        tiles = -(-(total + plan.phase) // plan.m)
        return [plan.m * n for n in _even_parts(tiles, _MOST_ROWS // plan.m)]
    return _even_parts(total, _MOST_ROWS)


def _column_counts(plan: FastPlan) -> list[int]:
    """Whole multiples of the columns that share a matmul, so that every column is summed alike."""
    total = plan.shape.out_size(WIDTH)
    stack = max(tile.stack for tile in out_channels(replace(plan, columns=total)))
    cuts = range(1, min(total, _MOST_COLUMN_CUTS) + 1)
    return list(dict.fromkeys(min(total, -(-total // (n * stack)) * stack) for n in cuts))


def _even_parts(total: int, most: int) -> list[int]:
    """Sizes of at most `most` that cut a whole into parts of about one size."""
    sizes = sorted({-(-total // parts) for parts in range(1, total + 1) if total <= parts * most})
    return [size for size in sizes if size <= _EVERY_SIZE or size % 4 == 0 or total % size == 0]


def _with_buffers(sized: FastPlan) -> Iterator[FastPlan]:
    """The roomiest buffers that SBUF allows, with weights that stay and with streamed ones."""
    tiles = len(out_channels(sized))
    ways = [(tiles, 0), *((tiles, slots) for slots in _STREAM_SLOTS)]
    if tiles > 1:
        ways.insert(1, (-(-tiles // 2), 0))
    found = 0
    for group, streamed in ways:
        weights = replace(sized, group=group, streamed=streamed)
        plan = _roomiest(weights)
        if plan is not None:
            yield plan
            found += 1
        if found == 2:
            return


def _roomiest(plan: FastPlan) -> FastPlan | None:
    limit = plan.target.sbuf_usable_bytes_per_partition
    room = room_of(plan)
    for body, v_slots, x_slots in _slot_counts(tempo_of(plan)):
        if room.needed(v_slots, x_slots) <= limit:
            one = replace(plan, body_blocks=body, v_slots=v_slots, x_slots=x_slots)
            if sbuf_end(one) <= limit:
                return one
    return None


@lru_cache(maxsize=1024)
def _slot_counts(tempo: Tempo) -> list[tuple[int, int, int]]:
    """Blocks of a body, slots of transformed inputs and of inputs; the roomiest first."""
    frames = tempo.block_frames
    found: dict[tuple[int, int], int] = {}  # least body for each pair of slots
    for body in range(1, _MOST_BODY + 1):
        for v_slots in _divisors(body * tempo.tiles_of_block):
            for x_slots in _divisors(body * frames):
                small = (v_slots, x_slots) not in found and x_slots <= 2 * frames
                if small and not broken_tempo(tempo, body, v_slots, x_slots):
                    found[v_slots, x_slots] = body
    least = min((v for v, _ in found), default=0)
    ordered = sorted(found, key=lambda pair: (pair[0], -pair[1]))
    return [(found[pair], *pair) for pair in ordered if pair[0] <= 2 * least]


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def rolled(legal: list[PricedFast], budget: int) -> list[PricedFast]:
    """Of all sizes: the fastest plans that are short enough, or become so by hardware loops."""
    if not legal:
        return []
    one = replace(legal[0].plan, units=1, rows=1, columns=1, paired_rows=False)
    base = replace(one, x_slots=1, v_slots=1, group=1, streamed=0, body_blocks=1)
    found: list[PricedFast] = []
    for least, sized in _sizes(base):
        worst = found[_KEPT - 1].cost.weighed_ns if len(found) >= _KEPT else inf
        if least > worst:
            break
        if least_rolled_ns(sized, budget) > worst:
            continue
        for plan in _with_buffers(sized):
            best = _within(plan, budget)
            if best is not None:
                insort(found, best, key=lambda one: one.cost.weighed_ns)
    return found[:_KEPT]


def _within(plan: FastPlan, budget: int) -> PricedFast | None:
    """A plan, or its fastest hardware loops, with at most `budget` static instructions."""
    cost = estimate(plan)
    if cost.instructions <= budget:
        return PricedFast(plan, cost)
    ways = (True, False) if can_be_even(plan) else (False,)
    loops = [_looped(replace(plan, rolled=True, even_rows=even), budget) for even in ways]
    found = [one for one in loops if one is not None]
    return min(found, key=lambda one: one.cost.weighed_ns, default=None)


def _looped(plan: FastPlan, budget: int) -> PricedFast | None:
    """A rolled plan with as many blocks in a turn as make it fastest."""
    room = plan.target.sbuf_usable_bytes_per_partition
    best: PricedFast | None = None
    for times in range(1, _MOST_BODY + 1):
        loop = replace(plan, body_blocks=times * plan.body_blocks)
        cost = estimate(loop)
        if cost.instructions > budget or cost.sbuf_bytes > room:
            break
        if best is None or cost.total_ns < best.cost.total_ns:
            best = PricedFast(loop, cost)
        if cost.loops_ns * _BODY_NS <= cost.total_ns * plan.target.timing.loop_iteration_ns:
            break
    return best
