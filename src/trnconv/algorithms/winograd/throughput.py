"""How long blocks of a Winograd plan take, one after the other and as iterations of a loop."""

from __future__ import annotations

from functools import lru_cache
from math import lcm
from typing import NamedTuple

from trnconv.algorithms.winograd.blocks import blocks_of
from trnconv.algorithms.winograd.order import begin
from trnconv.algorithms.winograd.pipeline import Pipeline
from trnconv.algorithms.winograd.pipeline_schedule import pipeline_schedule
from trnconv.algorithms.winograd.plan import WinogradPlan
from trnconv.algorithms.winograd.steady_state import SteadyState, steady_state

_BODIES, _BLOCKS = 2, 6  # followed at least; the others take as long as the last of them
_ITERATION_BLOCKS = 3  # of an iteration, the same


class UnrolledThroughput(NamedTuple):
    """Blocks of the most frequent kind, unrolled. Times in ns."""

    followed: int  # blocks
    followed_ns: float
    block_ns: float  # each one more

    def of_blocks(self, blocks: float) -> float:
        """So many of them, from the first load to the last store."""
        return self.followed_ns + (blocks - self.followed) * self.block_ns


class IterationThroughput(NamedTuple):
    """A hardware loop. Times in ns."""

    begin_ns: float  # before its first iteration
    pause_ns: float  # before each iteration
    body_ns: float  # from the first instruction of an iteration until all has ended
    block_ns: float  # each block more
    lost_ns: float  # of an iteration: no product is computed yet, or any more


def unrolled_throughput(plan: WinogradPlan, tiles: tuple[int, int]) -> UnrolledThroughput:
    """Of blocks one after the other, for some tiles of output channels, first and end."""
    return _unrolled_throughput(plan.but(looped=False, spans=0, body_blocks=_repeat(plan)), tiles)


def _repeat(plan: WinogradPlan) -> int:
    """Blocks after which slots are used as before."""
    pipeline = pipeline_schedule(plan)
    x_slots = plan.x_slots if pipeline.loads_ahead else 1
    return lcm(
        lcm(x_slots, pipeline.block_frames) // pipeline.block_frames,
        lcm(plan.v_slots, pipeline.tiles_of_block) // pipeline.tiles_of_block,
    )


@lru_cache(maxsize=4096)
def _unrolled_throughput(plan: WinogradPlan, tiles: tuple[int, int]) -> UnrolledThroughput:
    blocks, body = blocks_of(plan), plan.body_blocks
    followed = min(blocks, max(_BODIES, -(-_BLOCKS // body)) * body)
    return _followed(steady_state(plan, tiles), followed, min(blocks, followed + 2 * body))


@lru_cache(maxsize=4096)  # layers of other extents have the same blocks
def _followed(steady: SteadyState, followed: int, blocks: int) -> UnrolledThroughput:
    """Of the first `followed` blocks; nothing of what comes after `blocks` is prepared."""
    pipeline = Pipeline(steady)
    begin(pipeline)
    pipeline.load_weights()
    starts = range(0, followed, steady.blocks)
    ends = [0.0, *(pipeline.run(blocks - start) for start in starts)]
    pipeline.late.complete()
    return UnrolledThroughput(
        followed, pipeline.done, (ends[-1] - ends[-2]) / (followed - starts[-1])
    )


def iteration_throughput(plan: WinogradPlan, tiles: tuple[int, int]) -> IterationThroughput:
    """Of a plan with hardware loops: a short iteration, and more blocks at the same rate.

    So iterations of every length, which plans for several budgets have, are followed once.
    """
    repeat = _repeat(plan)
    usual = -(-_ITERATION_BLOCKS // repeat) * repeat
    body = plan.body_blocks if 1 < plan.body_blocks < usual else usual
    short = plan.but(spans=0, body_blocks=body)
    iteration, more = _iteration_throughput(short, tiles), plan.body_blocks - short.body_blocks
    return iteration._replace(body_ns=iteration.body_ns + more * iteration.block_ns)


@lru_cache(maxsize=4096)
def _iteration_throughput(plan: WinogradPlan, tiles: tuple[int, int]) -> IterationThroughput:
    return _followed_iteration(steady_state(plan, tiles))


@lru_cache(maxsize=4096)
def _followed_iteration(steady: SteadyState) -> IterationThroughput:
    """An iteration prepares what it needs first."""
    weights = Pipeline(steady)
    weights.load_weights()
    iteration = Pipeline(steady)
    iteration.begin_iteration()
    begin(iteration)
    iteration.run(steady.blocks)
    iteration.late.complete()
    ends = list(iteration.block_ends.values())
    return IterationThroughput(
        begin_ns=weights.done,
        pause_ns=float(steady.machine.timing.loop_iteration_ns),
        body_ns=iteration.done,
        block_ns=(ends[-1] - ends[0]) / (len(ends) - 1),
        lost_ns=(iteration.begun or 0.0) + iteration.done - iteration.multiplied,
    )
