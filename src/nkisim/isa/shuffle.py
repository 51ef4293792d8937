"""Movement between partitions inside quadrants: nc_stream_shuffle on the Vector engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nkisim import enums
from nkisim.isa.call import Call
from nkisim.isa.contract import CHIP, Contract, Operand
from nkisim.isa.indirect_views import not_indirect
from nkisim.isa.operands import NkiInstruction, held, index_tensors, store_held
from nkisim.isa.rules import same_dtype, same_elements
from nkisim.running.session import current

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nkisim.tensors.tensor import NkiTensor

KEEP = 255  # a mask entry that leaves its partition of dst as it is


def _mask_names_partitions(call: Call) -> None:
    mask, quadrant = call.facts["mask"], call.machine.quadrant_partitions
    legal = {*range(quadrant), KEEP}
    if len(mask) != quadrant or not legal.issuperset(mask):
        call.refuse(
            f"shuffle_mask {list(mask)}",
            f"{quadrant} integers, each 0..{quadrant - 1}, or {KEEP} to keep dst",
            "name the source partition of every partition of a quadrant",
        )


def _starts(call: Call) -> None:
    """Both tiles start where the larger one, rounded up to quadrants, may start."""
    machine, quadrant = call.machine, call.machine.quadrant_partitions
    active = -(-max(call["src"].shape[0], call["dst"].shape[0]) // quadrant) * quadrant
    unit = active if active <= 2 * quadrant else machine.partitions
    for name in ("src", "dst"):
        if call[name].start_partition % unit:
            legal = ", ".join(str(start) for start in range(0, machine.partitions, unit))
            call.refuse(
                f"{name} starts at partition {call[name].start_partition} with {active} active"
                " partitions",
                f"{active} active partitions start at partition {legal}",
                "move the tile to such a partition",
            )


def _sources_exist(call: Call) -> None:
    quadrant, available = call.machine.quadrant_partitions, call["src"].shape[0]
    for to, source in moves(call.facts["mask"], call["dst"].shape[0], quadrant):
        if source >= available:
            call.refuse(
                f"partition {to} of dst takes partition {source} of src",
                f"src has {available} partitions",
                "widen src, or shuffle one quadrant at a time",
            )


NC_STREAM_SHUFFLE = Contract(
    "nc_stream_shuffle",
    (enums.engine.vector,),
    (Operand("dst", CHIP, writes=True), Operand("src", CHIP)),
    (
        _mask_names_partitions,
        same_dtype("dst", "src"),
        same_elements("dst", "src"),
        _starts,
        _sources_exist,
        not_indirect,
    ),
)


def nc_stream_shuffle(
    dst: NkiTensor, src: NkiTensor, shuffle_mask: Sequence[int], name: str | None = None
) -> NkiInstruction:
    """In every quadrant, partition i of dst = partition shuffle_mask[i] of src; 255 keeps dst."""
    core = current()
    facts = (("mask", tuple(shuffle_mask)),)
    where = NC_STREAM_SHUFFLE.check(core, enums.engine.unknown, (dst, src), facts)
    reads = (src, *index_tensors(dst, src))
    handle = core.issue("nc_stream_shuffle", where, (dst,), reads, (), name)
    if core.values:
        values = np.array(held(dst)).reshape(dst.shape[0], -1)
        source = np.array(held(src)).reshape(src.shape[0], -1)
        for to, taken in moves(facts[0][1], dst.shape[0], core.machine.quadrant_partitions):
            values[to] = source[taken]
        store_held(dst, values)
    return NkiInstruction(handle)


def moves(mask: tuple[int, ...], partitions: int, quadrant: int) -> Iterator[tuple[int, int]]:
    """(partition of dst, partition of src) for every partition of dst that is written."""
    for to in range(partitions):
        wanted = mask[to % quadrant]
        if wanted != KEEP:
            yield to, to - to % quadrant + wanted
