"""The order of work of a Winograd kernel: blocks of a body, their units, chains of a unit.

The kernel and its price both run these functions, each with verbs of its own: see `executors.py`.
"""

from __future__ import annotations

from trnconv.algorithms.winograd.chains import begin_chain, end_chain
from trnconv.algorithms.winograd.executors import BodyExecutor
from trnconv.algorithms.winograd.prefetch import Prefetch
from trnconv.algorithms.winograd.prepare_steps import PrepareSteps, do_step, load_frame
from trnconv.algorithms.winograd.recipe import Unit
from trnconv.algorithms.winograd.store_tile import StoreTile


def begin(body: BodyExecutor) -> None:
    """What the first unit of the first block needs, with nothing to hide it behind."""
    recipe = body.recipe
    for load in recipe.first_loads:
        load_frame(body, load)
    works = PrepareSteps(recipe, recipe.first_prepares)
    for work in works.first:
        do_step(body, work)
    ahead = 0
    if recipe.steps_ahead:
        ahead = len(works.early)
    for number in range(ahead):
        do_step(body, works.early[number])
    for work in works.others:
        while ahead < work.after:
            do_step(body, works.early[ahead])
            ahead += 1
        do_step(body, work)


def run_body(body: BodyExecutor) -> None:
    """The units of some blocks; the last block may be one that is only prepared."""
    count = body.count
    for unit in body.recipe.units:
        if unit.block < count:
            for load in unit.loads:
                if load.block < count:
                    load_frame(body, load)
            prepares = []
            for prepare in unit.prepares:
                if prepare.block < count:
                    prepares.append(prepare)
            run_unit(body, unit, PrepareSteps(body.recipe, prepares))


def run_unit(body: BodyExecutor, unit: Unit, works: PrepareSteps) -> None:
    """All sums of a unit; between them, steps of preparing the next one, evenly spread.

    A chain is finished after the next one has begun, whose matmuls hide its waits. Outputs are
    normed during the next unit.
    """
    for work in works.first:
        do_step(body, work)
    chains = 0
    for tile in body.tiles:
        chains += len(body.rectangles(unit, tile))
    prefetch = Prefetch(body, works, chains)
    if len(body.outputs_of(unit)) == 0:
        prefetch.complete()
        return
    before: StoreTile | None = None
    outs = []
    stored = body.stores(unit)
    for tile in body.tiles:
        out = None
        added = None
        if stored:
            out = body.next_out()
            outs.append(out)
            added = body.residual_of(unit, tile)
        rectangles = body.rectangles(unit, tile)
        for number in range(len(rectangles)):
            chain = body.chain(unit, tile, rectangles[number])
            store_tile = StoreTile(chain, out, added, number == len(rectangles) - 1)
            begin_chain(chain, store_tile, prefetch)
            if before != None:
                finish(before, prefetch)
            before = store_tile
    if before != None:
        finish(before, prefetch)
    if stored:
        body.late.follow(body.norm_of(unit, outs))


def finish(store_tile: StoreTile, prefetch: Prefetch) -> None:
    """The rest of a chain; the last one of an output buffer has it stored."""
    end_chain(store_tile.chain, store_tile, prefetch)
    if store_tile.completes and store_tile.out != None:
        store_tile.chain.store(store_tile.out)
