"""What DMA moves for a plan, in closed form: windows in, outputs out, weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nkisim.machine import Timing
from trnconv.plan.conv_plan import BY_COLUMN, BY_FRAME, BY_ROW, ConvPlan, Pass
from trnconv.plan.in_lines import LineTile
from trnconv.plan.jobs import OutJob
from trnconv.plan.problem import HEIGHT, WIDTH


@dataclass(frozen=True)
class Transfers:
    """Some DMAs: how many, their bytes, and how long the engines move them."""

    dmas: float = 0
    hbm_bytes: float = 0
    ns: float = 0.0

    def __add__(self, other: Transfers) -> Transfers:
        return Transfers(
            self.dmas + other.dmas, self.hbm_bytes + other.hbm_bytes, self.ns + other.ns
        )

    def times(self, count: float) -> Transfers:
        """The same that many times."""
        return Transfers(self.dmas * count, self.hbm_bytes * count, self.ns * count)


def transfer(timing: Timing, dmas: float, descriptors: float, run_bytes: float) -> Transfers:
    """DMAs with so many descriptors of `run_bytes` each in all."""
    floor = timing.dma_descriptor_floor_ns
    each = max(floor, run_bytes / timing.dma_bytes_per_ns) + timing.dma_descriptor_overhead_ns
    return Transfers(dmas, descriptors * run_bytes, descriptors * each / timing.dma_engines)


def loaded_windows(
    jobs: Sequence[OutJob], slots: tuple[int, int, int]
) -> list[tuple[Pass, LineTile]]:
    """The windows one block loads, in order: slots are used in turn, so old ones may come again."""
    held: list[list[tuple[int, int, int]]] = [[], [], []]
    loaded = []
    for job in jobs:
        for product in job.products:
            level = product.tile.level
            rows = job.one.rows if level > BY_FRAME else 0
            columns = job.one.columns if level > BY_ROW else 0
            key = (id(product.tile), rows, columns)
            ring = held[level - 1]
            if key not in ring:
                ring.append(key)
                del ring[: -slots[level - 1]]
                loaded.append((job.one, product.tile))
    return loaded


def window_dmas(tile: LineTile) -> int:
    """DMAs that fill a window away from the borders: lines in step are loaded together."""
    dmas = 0
    last: tuple[int, int, tuple[int, ...]] | None = None
    for one in tile.lines:
        this = (one.channel, one.channels, one.key[:-1])
        if this != last:
            dmas += 1
        last = this
    return dmas


@dataclass(frozen=True)
class Extent:
    """Rows and columns of one block."""

    rows: int
    in_rows: int
    columns: int
    in_columns: int


def window_transfer(
    plan: ConvPlan, timing: Timing, one: Pass, tile: LineTile, extent: Extent
) -> Transfers:
    """Loading one window of one block."""
    problem, item = plan.problem, plan.item_bytes
    rows, columns = extent.in_rows, extent.in_columns
    whole = _rows_touch(problem.x_strides, columns)
    if tile.level >= BY_ROW:
        rows = -(-extent.rows // one.rows)
        whole = whole and one.rows * problem.stride[HEIGHT] == 1
    apart = False
    if tile.level == BY_COLUMN:
        columns = -(-extent.columns // one.columns)
        apart = one.columns * problem.stride[WIDTH] > 1
        whole = False
    runs, length = (1, rows * columns) if whole else (rows, columns)
    if apart:
        runs, length = rows * columns, 1
    return transfer(timing, window_dmas(tile), tile.count * runs, length * item)


def store_transfer(plan: ConvPlan, timing: Timing, job: OutJob, extent: Extent) -> Transfers:
    """Storing one job of one block."""
    problem, one = plan.problem, job.one
    rows = -(-extent.rows // one.rows)
    whole = _rows_touch(problem.y_strides, extent.columns) and one.rows == 1
    runs, length = (1, rows * extent.columns) if whole else (rows, extent.columns)
    lines = sum(box.lines for box in job.out.boxes)
    return transfer(timing, len(job.out.boxes), lines * runs, length * plan.item_bytes)


def _rows_touch(strides: tuple[int, int, int, int, int], columns: int) -> bool:
    """Whether rows of so many columns are one run in HBM."""
    return strides[3] == columns * strides[4]
