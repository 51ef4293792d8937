"""Three probes of trn1 after foxl-ai/kiln: dynamic loads that may be skipped, a loop, a top-k.

tools/probe_nki_dynamic.py (`k_dma_time`, `k_time_dyn`, `k_time_static`) and tools/probe_lc_prims.py
(`k_extract`).
"""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl

SLOTS = 4
FOUND = 8  # values that one round of the search finds
GONE = -3.0e38  # takes the place of a value that was found


def expert_loads(experts: nl.NkiTensor, numbers: nl.NkiTensor, skipped: int) -> nl.NkiTensor:
    """A load [128, F] of experts [E, 128, F] for each of numbers [1, U], into four slots in turn.

    The source skips a load by a number out of range. A stream without values cannot know which:
    here `skipped` of them, spread evenly, load a single byte instead. The result [128, 4] is the
    sum of the first 64 bytes of a slot.
    """
    _, rows, columns = experts.shape
    asked = numbers.shape[1]
    out = nl.ndarray((rows, SLOTS), dtype=nl.float32, buffer=nl.shared_hbm)
    index = nl.ndarray(numbers.shape, dtype=numbers.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=index, src=numbers)
    slots = nl.ndarray((rows, SLOTS, columns), dtype=experts.dtype, buffer=nl.sbuf)
    nisa.memset(slots, 0)
    sums = nl.ndarray((rows, SLOTS), dtype=nl.float32, buffer=nl.sbuf)
    for iteration in range(asked):
        expert = experts.select(0, index[:, iteration : iteration + 1])
        slot = slots[:, iteration % SLOTS, :]
        skip = (iteration + 1) * skipped // asked > iteration * skipped // asked
        if skip:
            nisa.dma_copy(dst=slot[0:1, 0:1], src=expert[0:1, 0:1])
        else:
            nisa.dma_copy(dst=slot, src=expert)
    for slot in range(SLOTS):
        nisa.tensor_reduce(sums[:, slot : slot + 1], nl.add, slots[:, slot, 0:64], axis=1)
    nisa.dma_copy(dst=out, src=sums)
    return out


def halve_and_add(x: nl.NkiTensor, iterations: int, *, looped: bool) -> nl.NkiTensor:
    """x = x / 2 + 1, `iterations` times in place, as a device loop or unrolled."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)

    def body(_iteration: object) -> None:
        nisa.tensor_scalar(
            dst=tile, data=tile, op0=nl.multiply, operand0=0.5, op1=nl.add, operand1=1.0
        )

    if looped:
        nl.fori_loop(0, iterations, body)
    else:
        for iteration in range(iterations):
            body(iteration)
    nisa.dma_copy(dst=out, src=tile)
    return out


def largest(x: nl.NkiTensor, rounds: int) -> tuple[nl.NkiTensor, nl.NkiTensor]:
    """The 8 * rounds largest values of each row of x [128, W] in order, and where they are."""
    rows, found = x.shape[0], FOUND * rounds
    values_out = nl.ndarray((rows, found), dtype=nl.float32, buffer=nl.shared_hbm)
    places_out = nl.ndarray((rows, found), dtype=nl.uint32, buffer=nl.shared_hbm)
    left = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=x)
    values = nl.ndarray((rows, found), dtype=nl.float32, buffer=nl.sbuf)
    places = nl.ndarray((rows, found), dtype=nl.uint32, buffer=nl.sbuf)
    for number in range(rounds):
        eight = slice(FOUND * number, FOUND * (number + 1))
        nisa.max8(dst=values[:, eight], src=left)
        nisa.nc_find_index8(dst=places[:, eight], data=left, vals=values[:, eight])
        nisa.nc_match_replace8(dst=left, data=left, vals=values[:, eight], imm=GONE)
    nisa.dma_copy(dst=values_out, src=values)
    nisa.dma_copy(dst=places_out, src=places)
    return values_out, places_out
