"""What DMA moves for a plan, by the cost model: windows in, outputs out, weights."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from trnconv.algorithms.direct.accumulations import AccumulationGroups, TileSum
from trnconv.algorithms.direct.array.k_layout import LineTile
from trnconv.algorithms.direct.array.m_layout import OutBox
from trnconv.algorithms.direct.plan import BY_COLUMN, BY_ROW, DirectPlan, PePacking
from trnconv.algorithms.direct.reduced_problem import HEIGHT, WIDTH
from trnconv.algorithms.dma import moved_ns
from trnconv.problem.epilogue import NO_RESIDUAL


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


def transfer(plan: DirectPlan, dmas: float, descriptors: float, run_bytes: float) -> Transfers:
    """DMAs with so many descriptors of `run_bytes` each in all."""
    ns = moved_ns(plan.timing, descriptors, run_bytes, looped=plan.looped)
    return Transfers(dmas, descriptors * run_bytes, ns)


@dataclass(frozen=True)
class Loaded:
    """A window that a block loads, and how often; and how many such windows there are."""

    packing: PePacking
    tile: LineTile
    times: int
    count: int


def loaded_windows(groups: AccumulationGroups, slots: tuple[int, int, int]) -> tuple[Loaded, ...]:
    """The windows one block loads: slots are used in turn, so some may have to come again."""
    return _in_iteration(groups, slots)[0]


def load_order(groups: AccumulationGroups, slots: tuple[int, int, int]) -> tuple[int, ...]:
    """One window after the other: which of `loaded_windows` each is like."""
    return _in_iteration(groups, slots)[1]


def _in_iteration(
    groups: AccumulationGroups, slots: tuple[int, int, int]
) -> tuple[tuple[Loaded, ...], tuple[int, ...]]:
    if slots not in groups.known:
        groups.known[slots] = _load_in_iteration(groups, slots)
    known: tuple[tuple[Loaded, ...], tuple[int, ...]] = groups.known[slots]
    return known


def _load_in_iteration(
    groups: AccumulationGroups, slots: tuple[int, int, int]
) -> tuple[tuple[Loaded, ...], tuple[int, ...]]:
    held: list[list[tuple[int, ...]]] = [[], [], []]
    places: dict[tuple[int, ...], int] = {}  # of what is loaded alike
    examples: list[tuple[PePacking, LineTile, int]] = []
    order = []
    for group in groups:
        packing = group.accumulation.packing
        for times in (1, group.count - 1):
            for tile in _missing(group.accumulation, held, slots) if times else ():
                key = (times, packing.rows, packing.columns, tile.level, tile.count, *tile.dmas)
                if key not in places:
                    places[key] = len(places)
                    examples.append((packing, tile, times))
                order.append(places[key])
    counts = Counter(order)
    loaded = (Loaded(*example, counts[at]) for at, example in enumerate(examples))
    return tuple(loaded), tuple(order)


def _missing(
    accumulation: TileSum, held: list[list[tuple[int, ...]]], slots: tuple[int, int, int]
) -> list[LineTile]:
    missing = []
    for product in accumulation.products:
        level = product.tile.level
        ring, key = held[level - 1], _window_key(accumulation, product.tile)
        if key not in ring:
            ring.append(key)
            del ring[: -slots[level - 1] or None]
            missing.append(product.tile)
    return missing


def _window_key(accumulation: TileSum, tile: LineTile) -> tuple[int, ...]:
    """Windows with equal keys are one: cut tiles are cached, so one tile is one object."""
    stack = (accumulation.packing.rows, accumulation.packing.columns)[: tile.level - 1]
    return (id(tile), *stack)


@dataclass(frozen=True)
class WindowCounts:
    """Windows by level: most of one accumulation, most new ones from one to the next, and all."""

    at_once: tuple[int, ...]
    fresh: tuple[int, ...]
    in_all: tuple[int, ...]

    def most(self, other: WindowCounts) -> WindowCounts:
        """The larger of both, number by number."""
        return WindowCounts(
            tuple(map(max, self.at_once, other.at_once)),
            tuple(map(max, self.fresh, other.fresh)),
            tuple(map(max, self.in_all, other.in_all)),
        )


def count_windows(groups: AccumulationGroups) -> WindowCounts:
    """The windows that the accumulations of a block need."""
    if WindowCounts not in groups.known:
        groups.known[WindowCounts] = _count_windows(groups)
    counts: WindowCounts = groups.known[WindowCounts]
    return counts


def _count_windows(groups: AccumulationGroups) -> WindowCounts:
    counts = WindowCounts((0, 0, 0), (0, 0, 0), (0, 0, 0))
    seen: list[set[tuple[int, ...]]] = [set(), set(), set()]
    for number, group in enumerate(groups):
        held: list[set[tuple[int, ...]]] = [set(), set(), set()]
        for product in group.accumulation.products:
            held[product.tile.level - 1].add(_window_key(group.accumulation, product.tile))
        fresh = tuple(len(now - known) for now, known in zip(held, seen, strict=True))
        seen = [known | now for known, now in zip(seen, held, strict=True)]
        at_once = tuple(len(keys) for keys in held)
        counts = counts.most(WindowCounts(at_once, fresh if number else (0, 0, 0), (0, 0, 0)))
    return counts.most(WindowCounts((0, 0, 0), (0, 0, 0), tuple(len(keys) for keys in seen)))


def window_dmas(plan: DirectPlan, tile: LineTile) -> int:
    """DMAs that fill a window away from the borders: lines in step are loaded together.

    Lines of different column shifts end at different borders, if there is padding.
    """
    if not plan.machine.accepts.split_partitions:
        return len(tile.lines)
    together, apart = tile.dmas
    return apart if tile.level == BY_COLUMN and plan.reduced.pad[WIDTH] else together


@dataclass(frozen=True)
class BlockExtent:
    """Rows and columns of one block."""

    rows: int
    in_rows: int
    columns: int
    in_columns: int


def window_transfer(plan: DirectPlan, loaded: Loaded, extent: BlockExtent) -> Transfers:
    """Loading one window of one block, once."""
    reduced, item = plan.reduced, plan.item_bytes
    packing, tile = loaded.packing, loaded.tile
    rows, columns = extent.in_rows, extent.in_columns
    whole = _rows_touch(reduced.x_strides, columns)
    if tile.level >= BY_ROW:
        rows = -(-extent.rows // packing.rows)
        whole = whole and reduced.advance(HEIGHT, packing.rows) == 1
    apart = False
    if tile.level == BY_COLUMN:
        columns = -(-extent.columns // packing.columns)
        apart = reduced.advance(WIDTH, packing.columns) > 1
        whole = False
    runs, length = (1, rows * columns) if whole else (rows, columns)
    if apart:
        runs, length = rows * columns, 1
    return transfer(plan, window_dmas(plan, tile), tile.count * runs, length * item)


def stored_boxes(plan: DirectPlan, accumulation: TileSum) -> tuple[OutBox, ...]:
    """The partitions of each store of an accumulation."""
    split = plan.machine.accepts.split_partitions
    return accumulation.out.boxes if split else accumulation.out.whole_boxes


def store_transfer(plan: DirectPlan, accumulation: TileSum, extent: BlockExtent) -> Transfers:
    """Storing one accumulation of one block, and loading its residual."""
    reduced, packing = plan.reduced, accumulation.packing
    rows = extent.rows if packing.separate else -(-extent.rows // packing.rows)
    in_order = packing.separate or packing.rows == 1
    whole = _rows_touch(reduced.y_strides, extent.columns) and in_order
    runs, length = (1, rows * extent.columns) if whole else (rows, extent.columns)
    boxes = stored_boxes(plan, accumulation)
    lines = sum(box.lines for box in boxes)
    stored = transfer(plan, len(boxes), lines * runs, length * plan.out_bytes)
    if plan.epilogue.residual == NO_RESIDUAL:
        return stored
    coarse = plan.epilogue.coarse
    if coarse is None:
        return stored + transfer(plan, len(boxes), lines * runs, length * plan.item_bytes)
    cells, run_bytes = rows // coarse.rows, extent.columns // coarse.columns * plan.item_bytes
    runs = 1 if extent.columns == reduced.out[WIDTH] else cells
    loads = len(boxes) * coarse.rows
    descriptors = lines * coarse.rows * runs
    return stored + transfer(plan, loads, descriptors, cells // runs * run_bytes)


def _rows_touch(strides: tuple[int, int, int, int, int], columns: int) -> bool:
    """Whether rows of so many columns are one run in HBM."""
    return strides[3] == columns * strides[4]
