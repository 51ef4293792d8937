"""What a fast plan costs, in closed form: modelled times, bytes and static instructions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from nkisim.machine import Timing
from trnconv.plan.ends import IDENTITY, NO_RESIDUAL
from trnconv.plan.fast_blocks import Span, column_spans, frame_spans, rectangles, row_spans
from trnconv.plan.fast_channels import in_channels, out_channels, taps_of
from trnconv.plan.fast_memory import lay_out
from trnconv.plan.fast_plan import V_BYTES, WIDTH, FastPlan

# How much of the Vector engine's work the Tensor engine waits for, as far as it exceeds a share of
# the latter's own: both work in order, and a chain ends on one before the other goes on.
_HIDDEN_SHARE = 0.62
_NOT_HIDDEN = 0.55


@dataclass(frozen=True)
class FastEstimate:
    """Modelled times in ns on the plan's machine, default reading; bytes; static instructions."""

    tensor_ns: float
    vector_ns: float
    scalar_ns: float
    dma_ns: float
    issue_ns: float
    ends_ns: float  # before the first matmul, after the last, and at the start of every loop
    loops_ns: float
    hbm_bytes: int
    sbuf_bytes: int
    instructions: int
    columns: int  # matmul columns that stream through the array

    @property
    def waiting_ns(self) -> float:
        """What the Tensor engine waits for the Vector engine."""
        return _NOT_HIDDEN * max(0.0, self.vector_ns - _HIDDEN_SHARE * self.tensor_ns)

    @property
    def total_ns(self) -> float:
        """The busiest resource, and what nothing hides."""
        computing = self.tensor_ns + self.waiting_ns
        most = max(computing, self.vector_ns, self.scalar_ns, self.dma_ns, self.issue_ns)
        return most + self.ends_ns + self.loops_ns

    @property
    def bound(self) -> str:
        """The busiest resource."""
        busy = self.busy_ns()
        return max(busy, key=lambda name: busy[name])

    def busy_ns(self) -> dict[str, float]:
        """By resource."""
        return {
            "tensor": self.tensor_ns,
            "vector": self.vector_ns,
            "scalar": self.scalar_ns,
            "dma": self.dma_ns,
            "dma issue": self.issue_ns,
        }


@dataclass(frozen=True)
class _Sum:
    """What some part of the work adds up to."""

    columns: int = 0
    tensor: float = 0.0
    vector: float = 0.0
    scalar: float = 0.0
    moved: float = 0.0
    loads: int = 0
    bytes: int = 0
    instructions: int = 0

    def __add__(self, other: _Sum) -> _Sum:
        return _Sum(
            self.columns + other.columns,
            self.tensor + other.tensor,
            self.vector + other.vector,
            self.scalar + other.scalar,
            self.moved + other.moved,
            self.loads + other.loads,
            self.bytes + other.bytes,
            self.instructions + other.instructions,
        )

    def times(self, count: int) -> _Sum:
        return _Sum(
            count * self.columns,
            count * self.tensor,
            count * self.vector,
            count * self.scalar,
            count * self.moved,
            count * self.loads,
            count * self.bytes,
            count * self.instructions,
        )


def estimate(plan: FastPlan) -> FastEstimate:
    """The cost of a plan that its schedule and SBUF allow."""
    timing = plan.target.timing
    counts = _kinds(plan)
    groups = 1 if plan.streamed else -(-len(out_channels(plan)) // plan.group)
    every, static, loops, turns = _Sum(), _Sum(), 0, 0
    for (row, column), count in counts.items():
        one = block_cost(plan, row, column)
        every += one.times(count)
        in_loop = count // plan.body_blocks if plan.rolled else 0
        if in_loop > 1:
            loops, turns = loops + 1, turns + in_loop * groups
            left = count - in_loop * plan.body_blocks
            static += one.times(left + plan.body_blocks)
        else:
            static += one.times(count)
    weights = _weight_loads(plan)
    every += weights
    begin = _begin_ns(plan)
    return FastEstimate(
        tensor_ns=every.tensor / timing.pe_ghz,
        vector_ns=every.vector / timing.vector_ghz,
        scalar_ns=every.scalar / timing.scalar_ghz,
        dma_ns=every.moved,
        issue_ns=every.loads * timing.dma_issue_hwdge_ns,
        ends_ns=begin * (1 + loops) * groups,
        loops_ns=(turns + loops * groups) * timing.loop_iteration_ns,
        hbm_bytes=int(every.bytes),
        sbuf_bytes=lay_out(plan).end,
        instructions=int(static.instructions + weights.instructions),
        columns=int(every.columns),
    )


def _kinds(plan: FastPlan) -> dict[tuple[Span, Span], int]:
    """One row and column span of each kind, and how many blocks look like them."""
    frames = len(frame_spans(plan)) * plan.shape.batch
    rows, columns = row_spans(plan), column_spans(plan)
    row_of = {span.look: span for span in rows}
    column_of = {span.look: span for span in columns}
    row_counts = Counter(span.look for span in rows)
    column_counts = Counter(span.look for span in columns)
    return {
        (row_of[row], column_of[column]): many * more * frames
        for row, many in row_counts.items()
        for column, more in column_counts.items()
    }


def block_cost(plan: FastPlan, row: Span, column: Span) -> _Sum:
    """A block with all its output channels; inputs once for each group of output tiles."""
    groups = 1 if plan.streamed else -(-len(out_channels(plan)) // plan.group)
    cost = (_inputs(plan, row, column)).times(groups)
    for stack in Counter(tile.stack for tile in out_channels(plan)):
        tiles = [tile for tile in out_channels(plan) if tile.stack == stack]
        lines = sum(tile.channels for tile in tiles)
        cost += _chains(plan, (row, column), stack, len(tiles))
        cost += _stores(plan, row, column, lines)
    return cost


def _inputs(plan: FastPlan, row: Span, column: Span) -> _Sum:
    """Loads and transforms."""
    timing, steps = plan.target.timing, len(plan.algorithm.steps)
    tiles = plan.block_frames if plan.by_rows else plan.units
    cost = _Sum()
    for tile in in_channels(plan):
        width = column.ins if tile.shifted else column.end - column.first
        rows = row.end - row.first
        v_rows = row.outs // plan.m if plan.by_rows else rows
        cycles = 1 if plan.item_bytes == V_BYTES else 2
        streamed = v_rows * width * cycles + timing.vector_startup_cycles
        whole = not tile.shifted and width == plan.shape.size[WIDTH]
        runs = 1 if whole else rows
        moved = _moved(timing, tile.lines * runs, rows * width // runs * plan.item_bytes)
        frame = _Sum(
            moved=moved,
            loads=len(tile.shifts),
            bytes=tile.lines * rows * width * plan.item_bytes,
            instructions=len(tile.shifts) + 1,
        )
        cost += frame.times(plan.block_frames)
        cost += _Sum(vector=steps * streamed, instructions=steps + 2).times(tiles)
    return cost


def _moved(timing: Timing, descriptors: int, each_bytes: float) -> float:
    """What descriptors take of the DMA engines together."""
    each = max(timing.dma_descriptor_floor_ns, each_bytes / timing.dma_bytes_per_ns)
    return descriptors * (each + timing.dma_descriptor_overhead_ns) / timing.dma_engines


def _chains(plan: FastPlan, spans: tuple[Span, Span], stack: int, tiles: int) -> _Sum:
    """Products, and their way out of PSUM."""
    timing, algorithm = plan.target.timing, plan.algorithm
    row, column = spans
    rows = row.outs // plan.m if plan.by_rows else row.outs
    matmuls = round(algorithm.products * _computed(plan) * _taps_of_stack(plan, stack))
    cost = _Sum()
    for one in rectangles(rows, -(-column.outs // stack), plan.target.psum_bank_fp32_elems):
        n = (one.row_end - one.row) * (one.column_end - one.column)
        passes, copies = _passes(plan, stack)
        cost += _Sum(
            columns=matmuls * n,
            tensor=matmuls * (max(n, timing.pe_min_cycles) + timing.pe_gap_cycles),
            vector=passes * (n + timing.vector_startup_cycles),
            scalar=copies * (n + timing.scalar_startup_cycles),
            instructions=matmuls + int(passes + copies),
        )
        if plan.streamed:
            cost += _streamed(plan, stack).times(algorithm.products)
    return cost.times(tiles * plan.units)


def _taps_of_stack(plan: FastPlan, stack: int) -> int:
    """Matmuls of a product that come one after the other."""
    shared = max(tile.shared for tile in out_channels(plan) if tile.stack == stack)
    return len(taps_of(plan, shared))


@lru_cache(maxsize=1024)
def _computed(plan: FastPlan) -> float:
    """The share of all products that is computed: tiles at the ends may be cut."""
    spans = frame_spans(plan)
    count = sum(len(unit.products) for span in spans for unit in span.units)
    return count / (len(spans) * plan.units * plan.algorithm.products)


def _passes(plan: FastPlan, stack: int) -> tuple[float, float]:
    """Passes over a rectangle on Vector and Scalar engine."""
    m = plan.m
    inner, copies = (0.0, 2.0) if m == 2 else (3.0, 4.0)
    if not plan.midgroup:
        inner, copies = inner + 2, copies - 1
    if plan.end.activation == IDENTITY and plan.end.residual == NO_RESIDUAL:
        return inner + m * stack, copies
    added = 0 if plan.end.residual == NO_RESIDUAL else 2 * m * stack
    activated = 0 if plan.end.activation == IDENTITY else m * stack
    return inner + m + added, copies + activated


def _streamed(plan: FastPlan, stack: int) -> _Sum:
    """One load of the weights of a product."""
    timing, lines = plan.target.timing, plan.target.partitions
    width = max(tile.width for tile in out_channels(plan) if tile.stack == stack)
    row_bytes = _taps_of_stack(plan, stack) * width * V_BYTES
    return _Sum(
        moved=_moved(timing, lines, row_bytes), loads=1, bytes=lines * row_bytes, instructions=1
    )


def _weight_loads(plan: FastPlan) -> _Sum:
    """Weights that stay, group by group."""
    if plan.streamed:
        return _Sum()
    groups = -(-len(out_channels(plan)) // plan.group)
    columns = sum(len(taps_of(plan, tile.shared)) * tile.width for tile in out_channels(plan))
    row_bytes, lines = columns * plan.algorithm.products * V_BYTES, plan.target.partitions
    moved = _moved(plan.target.timing, lines, row_bytes)
    return _Sum(moved=moved, loads=groups, bytes=lines * row_bytes, instructions=groups)


def _stores(plan: FastPlan, row: Span, column: Span, lines: int) -> _Sum:
    """Output buffers to y; what is added comes the same way."""
    timing = plan.target.timing
    whole = column.outs == plan.shape.out_size(WIDTH)
    runs = 1 if whole else row.stored
    frames = 1 if plan.by_rows else plan.m
    each = row.stored * column.outs // runs * plan.out_bytes
    ways = 1 if plan.end.residual == NO_RESIDUAL else 2
    one = _Sum(
        moved=_moved(timing, lines * frames * runs, each),
        loads=-(-lines // plan.target.partitions),
        bytes=lines * frames * row.stored * column.outs * plan.out_bytes,
        instructions=-(-lines // plan.target.partitions),
    )
    return one.times(ways * plan.units)


@lru_cache(maxsize=1024)
def _begin_ns(plan: FastPlan) -> float:
    """Before the first matmul of a sweep: its loads, its weights and the first transforms."""
    timing = plan.target.timing
    row, column = row_spans(plan)[0], column_spans(plan)[0]
    inputs = _inputs(plan, row, column)
    first = plan.read_frames if plan.by_rows else plan.algorithm.products
    tiles = plan.block_frames if plan.by_rows else plan.units
    share = first / plan.block_frames
    weights = 0.0 if plan.streamed else _weight_loads(plan).moved
    loads = inputs.loads * share * timing.dma_issue_hwdge_ns + inputs.moved * share
    prepared = inputs.vector / tiles * plan.read_frames / timing.vector_ghz
    n = prod((row.outs, column.outs))
    out = n * plan.out_bytes * plan.target.partitions / timing.dma_bytes_per_ns
    return 2 * timing.dma_start_ns + loads + prepared + weights / 2 + out / timing.dma_engines
