"""Hardware loops of few steps, so that a loop is a matter of milliseconds."""

import pytest

from trnconv.neighbours.attention import problem as attention
from trnconv.neighbours.channel_norm import problem as channel_norm
from trnconv.neighbours.channel_norm_gradient import problem as channel_norm_gradient
from trnconv.neighbours.group_norm import problem as group_norm
from trnconv.neighbours.group_norm_gradient import problem as group_norm_gradient
from trnconv.neighbours.modulation import problem as modulation

TURN = 120  # static instructions
KEPT = (
    channel_norm.plan_of,
    channel_norm._price,
    channel_norm_gradient.plan_of,
    channel_norm_gradient._price,
    group_norm.recipes_of,
    group_norm_gradient.recipes_of,
    modulation.recipes_of,
    attention.recipes_of,
)


@pytest.fixture
def short_turns(monkeypatch):
    """Turns of some steps, in every kernel; what was planned before is forgotten."""
    modules = (channel_norm, channel_norm_gradient, group_norm, group_norm_gradient, modulation)
    for module in modules:
        monkeypatch.setattr(module, "_TURN_INSTRUCTIONS", TURN)
    monkeypatch.setattr(modulation, "_UNROLLED", 2 * TURN)
    monkeypatch.setattr(attention, "_TILES", (2,))
    for kept in KEPT:
        kept.cache_clear()
    yield
    for kept in KEPT:
        kept.cache_clear()
