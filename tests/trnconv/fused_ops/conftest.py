"""Hardware loops of few steps, so that a loop is a matter of milliseconds."""

import pytest

from trnconv.fused_ops import sweep
from trnconv.fused_ops.attention import problem as attention
from trnconv.fused_ops.group_norm import problem as group_norm
from trnconv.fused_ops.group_norm_gradient import problem as group_norm_gradient
from trnconv.fused_ops.modulation import problem as modulation
from trnconv.fused_ops.problem import price_of
from trnconv.fused_ops.rms_norm import problem as rms_norm
from trnconv.fused_ops.rms_norm_gradient import problem as rms_norm_gradient

ITERATION = 120  # static instructions
KEPT = (
    price_of,
    rms_norm.plan_of,
    rms_norm_gradient.plan_of,
    group_norm.recipes_of,
    group_norm_gradient.recipes_of,
    modulation.recipes_of,
    attention.recipes_of,
)


@pytest.fixture
def short_iterations(monkeypatch):
    """Iterations of some steps, in every kernel; what was planned before is forgotten."""
    for module in (sweep, modulation):
        monkeypatch.setattr(module, "ITERATION_INSTRUCTIONS", ITERATION)
    monkeypatch.setattr(modulation, "_UNROLLED", 2 * ITERATION)
    monkeypatch.setattr(attention, "_TILES", (2,))
    for kept in KEPT:
        kept.cache_clear()
    yield
    for kept in KEPT:
        kept.cache_clear()
