"""Attention in one pass over keys, with sums that follow the maximum.

    o = softmax(scale * q k^T) v

Tiles of queries go through blocks of keys. For each: the Tensor engine makes scores in PSUM; the
Vector engine finds their maximum so far; the Scalar engine makes exp(scale * (s - m)) and its sum;
the Tensor engine transposes that and multiplies by v; the Vector engine adds it to what the
blocks before gave, scaled to the new maximum. Scores are never in HBM. Queries that see the same
keys are rows of the recipe: what no query of a row sees is not computed, so no mask is needed.

The Tensor engine has scores of one tile, products of the one two before, and transposes the one
between: so it waits for no other engine.
"""

from __future__ import annotations

from trnconv._nki import nisa, nl
from trnconv.algorithms.kernel_parts import wait_for_both
from trnconv.algorithms.recipe_parts import RecipePair
from trnconv.fused_ops.attention.core import AttentionCore, QueryRegion
from trnconv.fused_ops.attention.recipe import AttentionRecipe, QueryRow


def attention(
    q: nl.NkiTensor, k: nl.NkiTensor, v: nl.NkiTensor, recipe: AttentionRecipe
) -> nl.NkiTensor:
    """q, k and v [N, tokens, d] -> o [N, tokens, d]."""
    o = nl.ndarray(recipe.shape, dtype=q.dtype, buffer=nl.shared_hbm, name="o")
    attend(AttentionCore(q, k, v, o, recipe))
    return o


def attention_on_two_cores(
    q: nl.NkiTensor, k: nl.NkiTensor, v: nl.NkiTensor, recipes: RecipePair
) -> nl.NkiTensor:
    """The same, with each of two cores computing its queries."""
    o = attention(q, k, v, recipes.cores[nl.program_id(0)])
    wait_for_both(o)
    return o


def attend(core: AttentionCore) -> None:
    """Row after row of queries."""
    for row in core.recipe.rows:
        if row.iterations == 1:
            QueryRegion(core, row, None).run()
        else:
            run_loop(core, row)


def run_loop(core: AttentionCore, row: QueryRow) -> None:
    """A hardware loop over queries that see the same keys."""

    def one_iteration(counter: nisa.VirtualRegister) -> None:
        QueryRegion(core, row, counter).run()

    nl.fori_loop(0, row.iterations * row.count, one_iteration, step=row.count)
