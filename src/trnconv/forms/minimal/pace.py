"""How long blocks of a fast plan take, one after the other and as turns of a hardware loop."""

from __future__ import annotations

from functools import lru_cache
from math import lcm
from typing import NamedTuple

from trnconv.forms.minimal.blocks import blocks_of
from trnconv.forms.minimal.order import begin
from trnconv.forms.minimal.pipeline import Pipeline
from trnconv.forms.minimal.plan import MinimalPlan
from trnconv.forms.minimal.score import Score, score_of
from trnconv.forms.minimal.tempo import tempo_of

_BODIES, _BLOCKS = 2, 6  # followed at least; the others take as long as the last of them
_TURN_BLOCKS = 3  # of a turn, the same


class StraightPace(NamedTuple):
    """Blocks of the most frequent kind, unrolled. Times in ns."""

    followed: int  # blocks
    followed_ns: float
    block_ns: float  # each one more

    def of_blocks(self, blocks: float) -> float:
        """So many of them, from the first load to the last store."""
        return self.followed_ns + (blocks - self.followed) * self.block_ns


class TurnPace(NamedTuple):
    """A hardware loop. Times in ns."""

    begin_ns: float  # before its first turn
    pause_ns: float  # before each turn
    body_ns: float  # from the first instruction of a turn until all has ended
    block_ns: float  # each block more
    lost_ns: float  # of a turn: no product is computed yet, or any more


def straight_pace(plan: MinimalPlan, tiles: tuple[int, int]) -> StraightPace:
    """Of blocks one after the other, for some tiles of output channels, first and end."""
    return _straight_pace(plan.but(rolled=False, spans=0, body_blocks=_repeat(plan)), tiles)


def _repeat(plan: MinimalPlan) -> int:
    """Blocks after which slots are used as before."""
    tempo = tempo_of(plan)
    x_slots = plan.x_slots if tempo.loads_ahead else 1
    return lcm(
        lcm(x_slots, tempo.block_frames) // tempo.block_frames,
        lcm(plan.v_slots, tempo.tiles_of_block) // tempo.tiles_of_block,
    )


@lru_cache(maxsize=4096)
def _straight_pace(plan: MinimalPlan, tiles: tuple[int, int]) -> StraightPace:
    blocks, body = blocks_of(plan), plan.body_blocks
    followed = min(blocks, max(_BODIES, -(-_BLOCKS // body)) * body)
    return _followed(score_of(plan, tiles), followed, min(blocks, followed + 2 * body))


@lru_cache(maxsize=4096)  # layers of other extents have the same blocks
def _followed(score: Score, followed: int, blocks: int) -> StraightPace:
    """Of the first `followed` blocks; nothing of what comes after `blocks` is prepared."""
    pipeline = Pipeline(score)
    begin(pipeline)
    pipeline.load_weights()
    starts = range(0, followed, score.blocks)
    ends = [0.0, *(pipeline.run(blocks - start) for start in starts)]
    pipeline.late.complete()
    return StraightPace(followed, pipeline.done, (ends[-1] - ends[-2]) / (followed - starts[-1]))


def turn_pace(plan: MinimalPlan, tiles: tuple[int, int]) -> TurnPace:
    """Of a plan with hardware loops: a short turn, and more blocks at their pace.

    So turns of every length, which plans for several budgets have, are followed once.
    """
    repeat = _repeat(plan)
    usual = -(-_TURN_BLOCKS // repeat) * repeat
    body = plan.body_blocks if 1 < plan.body_blocks < usual else usual
    short = plan.but(spans=0, body_blocks=body)
    turn, more = _turn_pace(short, tiles), plan.body_blocks - short.body_blocks
    return turn._replace(body_ns=turn.body_ns + more * turn.block_ns)


@lru_cache(maxsize=4096)
def _turn_pace(plan: MinimalPlan, tiles: tuple[int, int]) -> TurnPace:
    return _followed_turn(score_of(plan, tiles))


@lru_cache(maxsize=4096)
def _followed_turn(score: Score) -> TurnPace:
    """A turn prepares what it needs first."""
    weights = Pipeline(score)
    weights.load_weights()
    turn = Pipeline(score)
    turn.begin_turn()
    begin(turn)
    turn.run(score.blocks)
    turn.late.complete()
    ends = list(turn.block_ends.values())
    return TurnPace(
        begin_ns=weights.done,
        pause_ns=float(score.machine.timing.loop_iteration_ns),
        body_ns=turn.done,
        block_ns=(ends[-1] - ends[0]) / (len(ends) - 1),
        lost_ns=(turn.begun or 0.0) + turn.done - turn.multiplied,
    )
