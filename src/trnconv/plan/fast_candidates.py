"""Fast plans worth pricing, by transform and axis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nkisim.machine import Machine
from trnconv.geometry import ConvShape
from trnconv.plan.ends import PLAIN_END, End
from trnconv.plan.fast_channels import in_channels, out_channels
from trnconv.plan.fast_cost import FastEstimate, estimate
from trnconv.plan.fast_legality import broken_rules
from trnconv.plan.fast_memory import lay_out
from trnconv.plan.fast_plan import DEPTH, HEIGHT, V_BYTES, WIDTH, FastPlan
from trnconv.plan.fast_schedule import broken_schedule

_MOST_ROWS = 32
_EVERY_SIZE = 8  # larger blocks are tried in steps
_V_SHARE = 0.75  # of SBUF, for transformed inputs
_MOST_COLUMN_CUTS = 8
_MOST_UNITS = 8
_MOST_BODY = 6
_STREAM_SLOTS = (12, 8, 5)
_BODY_NS = 300_000.0  # a turn of a hardware loop that long hides what the turn itself costs
_ROLLED_TRIES = 12


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
    paired = (False, True) if _can_pair(base) else (False,)
    for rows in _row_counts(base):
        for columns in _column_counts(base):
            if not _sensible(base, rows, columns):
                continue
            for units in _unit_counts(base):
                for pair in paired:
                    sized = replace(base, units=units, rows=rows, columns=columns, paired_rows=pair)
                    yield from _with_buffers(sized)


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
    total = plan.shape.out_size(WIDTH)
    cuts = range(1, min(total, _MOST_COLUMN_CUTS) + 1)
    return list(dict.fromkeys(-(-total // n) for n in cuts))


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
    room = plan.target.sbuf_usable_bytes_per_partition
    least = lay_out(plan)
    x_bytes = sum(ring.pitch for ring in least.x)
    v_bytes = sum(ring.pitch for ring in least.v)
    for body, v_slots, x_slots in _slot_counts(plan):
        if least.end + (v_slots - 1) * v_bytes + (x_slots - 1) * x_bytes <= room:
            one = replace(plan, body_blocks=body, v_slots=v_slots, x_slots=x_slots)
            if lay_out(one).end <= room:
                return one
    return None


def _slot_counts(plan: FastPlan) -> list[tuple[int, int, int]]:
    """Blocks of a body, slots of transformed inputs and of inputs; the roomiest first."""
    key = replace(plan, rows=plan.m, columns=1, group=1, streamed=0)
    if key not in _SLOTS:
        _SLOTS[key] = _find_slots(key)
    return _SLOTS[key]


_SLOTS: dict[FastPlan, list[tuple[int, int, int]]] = {}


def _find_slots(plan: FastPlan) -> list[tuple[int, int, int]]:
    frames = plan.block_frames
    found: dict[tuple[int, int], int] = {}  # least body for each pair of slots
    for body in range(1, _MOST_BODY + 1):
        for v_slots in _divisors(body * (frames if plan.by_rows else plan.units)):
            for x_slots in _divisors(body * frames):
                one = replace(plan, body_blocks=body, v_slots=v_slots, x_slots=x_slots)
                small = (v_slots, x_slots) not in found and x_slots <= 2 * frames
                if small and not broken_schedule(one):
                    found[v_slots, x_slots] = body
    least = min((v for v, _ in found), default=0)
    ordered = sorted(found, key=lambda pair: (pair[0], -pair[1]))
    return [(found[pair], *pair) for pair in ordered if pair[0] <= 2 * least]


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def rolled(legal: list[PricedFast], budget: int) -> list[PricedFast]:
    """Hardware loops in place of equal blocks, for the fastest plans that become short enough."""
    found = []
    for one in legal[:_ROLLED_TRIES]:
        best: PricedFast | None = None
        for times in range(1, _MOST_BODY + 1):
            plan = replace(one.plan, rolled=True, body_blocks=times * one.plan.body_blocks)
            cost = estimate(plan)
            if cost.instructions > budget or broken_rules(plan):
                break
            if best is None or cost.total_ns < best.cost.total_ns:
                best = PricedFast(plan, cost)
            if cost.loops_ns * _BODY_NS <= cost.total_ns * plan.target.timing.loop_iteration_ns:
                break
        if best is not None:
            found.append(best)
    return found
