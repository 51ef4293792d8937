"""Operands of one instruction that share bytes without being the same elements.

An engine may work in place: dst and src are the same elements in the same order. Any other overlap
is undefined in NKI, because what is read late may be what was written early.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nkisim.errors import NkiValidationError
from nkisim.memory.footprint import View, same_elements_in_order, view_at, views_meet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nkisim.trace import Access

_SYNCHRONISING = frozenset({"core_barrier"})  # names its data twice and moves none of them

# Two overlaps are harmless by what the instruction does, and nki-library has them: a shuffle takes
# all partitions of a column at a time (row 0 is spread over its own tile), and a reduction to one
# element has read all before it writes (a row is reduced onto its first element).
_SHUFFLING = "nc_stream_shuffle"
_REDUCING = "tensor_reduce"


def refuse_overlap(op: str, written: Sequence[Access], read: Sequence[Access]) -> None:
    """Refuse an instruction that writes part of what it reads, or one byte through two results."""
    if len(written) == 1 and written[0].allocation.address_bytes is None:
        result = written[0].allocation
        for source in read:
            if source.allocation is result:
                break
        else:
            return  # most instructions: this is asked for every one
    if op in _SYNCHRONISING:
        return
    for number, target in enumerate(written):
        for source in read:
            if _overlap(target, source) and not _harmless(op, target, source):
                _refuse(op, target, source, "reads")
        for other in written[:number]:
            if _overlap(target, other) or _same(target, other):
                _refuse(op, target, other, "writes as another result")


def _overlap(first: Access, second: Access) -> bool:
    """Whether two accesses share bytes and are not the same elements."""
    if first.anywhere or second.anywhere:
        return False
    if first.allocation is second.allocation:
        if first.offset == second.offset and first.layout is second.layout:
            return False
    elif not _placed_together(first, second):
        return False
    views = _view(first), _view(second)
    return not same_elements_in_order(*views) and views_meet(*views)


def _same(first: Access, second: Access) -> bool:
    same = first.allocation is second.allocation and first.offset == second.offset
    return same and first.layout is second.layout and not first.anywhere


def _harmless(op: str, target: Access, source: Access) -> bool:
    """Whether the instruction has read what it overwrites."""
    if op == _REDUCING:
        return target.layout.elems == 1
    a, b = _view(target), _view(source)
    return op == _SHUFFLING and a.byte == b.byte and a.layout.free == b.layout.free


def _placed_together(first: Access, second: Access) -> bool:
    """Whether manual addresses put two tensors into one memory."""
    a, b = first.allocation, second.allocation
    manual = a.address_bytes is not None and b.address_bytes is not None
    return manual and a.region is b.region


def _view(access: Access) -> View:
    place = access.allocation
    view = view_at(access.layout, access.offset, place.bytes_per_partition)
    first = place.start_partition + view.partition
    return View(view.layout, first, (place.address_bytes or 0) + view.byte)


def _refuse(op: str, target: Access, other: Access, verb: str) -> None:
    low, high = target.byte_interval
    other_low, other_high = other.byte_interval
    raise NkiValidationError(
        f"writes bytes {low}..{high - 1} of {target.allocation.name!r} and {verb} bytes"
        f" {other_low}..{other_high - 1} of {other.allocation.name!r}, which overlap in part",
        instruction=op,
        limit="operands are the same elements in the same order, or share no byte",
        remedy="write to another tile, or split the instruction where the parts meet",
    )
