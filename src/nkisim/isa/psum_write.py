"""Writing matmul results to PSUM: overwrite or add, element by element.

Whether an element is added to is decided before the instruction is issued, from the history of
the tile alone, so that a shape-only run decides, and refuses, the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nkisim.device_rules.instruction_rules import (
    ACCUMULATE_NONE,
    PSUM_GROUPS,
    PSUM_GROUPS_UNTESTED,
)
from nkisim.errors import UnsupportedError, refuse
from nkisim.machine import V4
from nkisim.numerics import dtypes
from nkisim.tensors.indirection import current_offset, read_held, whole_rows, write_held
from nkisim.tensors.tensor import FreeIndex

if TYPE_CHECKING:
    from nkisim.isa.operands import Array
    from nkisim.memory.accumulation import Accumulation, Mask
    from nkisim.running.session import Session
    from nkisim.tensors.tensor import NkiTensor


@dataclass(frozen=True)
class PsumWrite:
    """One matmul's write to PSUM; `kept` are the elements it adds to: all, none, or a mask."""

    instruction: str
    dst: NkiTensor
    kept: Mask | bool
    inferred: bool  # nobody said whether to overwrite or to add

    def note(self) -> None:
        """Remember that a matmul wrote dst."""
        dst = self.dst
        scattered = isinstance(dst.indirection, FreeIndex)
        place = whole_rows(dst) if scattered else (dst.layout, current_offset(dst))
        _history(dst).mark(*place)

    def add(self, core: Session, product: Array) -> None:
        """Put `product` (fp32) into dst, added to what is kept and rounded once.

        An fp32 tile that keeps everything is added to in place: nothing has to be rounded.
        """
        dst = self.dst
        if self.inferred:
            self._refuse_leftovers()
        if self.kept is True and _adds_in_place(dst):
            total = read_held(dst)
            with np.errstate(all="ignore"):
                total += product.reshape(dst.shape)
            return
        values = self._summed(product.reshape(dst.shape))
        self.place(core, dtypes.round_floats(values, dst.dtype, precise=dst.storage.precise))

    def place(self, core: Session, held: Array) -> None:
        """Put held values into dst as they are."""
        write_held(self.dst, held, core.machine.quadrant_partitions)

    def _summed(self, product: Array) -> Array:
        if self.kept is False:
            return product
        with np.errstate(all="ignore"):
            total: Array = read_held(self.dst) + product
            return total if self.kept is True else np.where(self.kept, total, product)

    def _refuse_leftovers(self) -> None:
        """An inferred flag over non-zero memset or copy results has no defined meaning."""
        if self.kept is True or not _history(self.dst).foreign_writes:
            return
        old = read_held(self.dst)
        if np.any(np.logical_not(self.kept) & (old != 0) & ~np.isnan(old)):
            refuse(
                self.instruction,
                f"accumulate=None onto {self.dst.name!r}, which holds non-zero values that no"
                " matmul wrote",
                "whether they are overwritten or added to is not defined",
                "pass accumulate=False, allocate a fresh PSUM tile, or add in SBUF",
            )


def _adds_in_place(dst: NkiTensor) -> bool:
    storage = dst.storage
    same = dst.dtype == storage.dtype == "float32" and storage.raw is None
    return same and dst.indirection is None


def begin_write(
    core: Session, instruction: str, dst: NkiTensor, accumulate: bool | None
) -> PsumWrite:
    """Decide what a matmul does to each element of dst. Call it before issuing the matmul."""
    if not (accumulate is None or isinstance(accumulate, (bool, np.bool_))):
        refuse(instruction, f"accumulate={accumulate!r}", "True, False or None", "pass one of them")
    adds = None if accumulate is None else bool(accumulate)
    if isinstance(dst.indirection, FreeIndex) and adds is not False:
        raise UnsupportedError(
            f"accumulate={accumulate} into a view made by .indirect()",
            instruction=instruction,
            limit="the history of scattered elements is known on the device only",
            remedy="pass accumulate=False",
        )
    kept = False if adds is False else _kept(core, instruction, dst, adds)
    if not isinstance(dst.indirection, FreeIndex):
        _follow_group(core, instruction, dst, goes_on=kept is not False, inferred=adds is None)
    if kept is not False and dst.storage.neighbours is not None:
        dst.storage.neighbours.check_read(dst.storage, dst.layout, current_offset(dst))
    return PsumWrite(instruction, dst, kept, inferred=adds is None)


def _history(dst: NkiTensor) -> Accumulation:
    history = dst.storage.accumulation
    assert history is not None, "dst is in PSUM"
    return history


def _follow_group(
    core: Session, instruction: str, dst: NkiTensor, *, goes_on: bool, inferred: bool
) -> None:
    """What device rules have to say about the group of matmuls that dst belongs to."""
    groups, place = _history(dst).groups, current_offset(dst)
    if not goes_on:
        groups.begin(dst.layout, place)
        return
    group = groups.add(dst.layout, place)
    if inferred and group.read:
        what = f"accumulate=None into {dst.name!r}, whose sums were read before"
        core.monitor.broken(ACCUMULATE_NONE, what, instruction)
    if groups.several:
        _notice_neighbours(core, instruction, dst, groups.beside(group))


def _notice_neighbours(
    core: Session, instruction: str, dst: NkiTensor, beside: tuple[bool, bool]
) -> None:
    """`beside`: another group was added to in other columns, on other partitions of the tensor."""
    what = f"a second accumulation group in {dst.name!r}"
    if beside[0]:
        rule = PSUM_GROUPS if PSUM_GROUPS.concerns(core.machine) else PSUM_GROUPS_UNTESTED
        core.monitor.broken(rule, f"{what}, in other columns", instruction)
    if beside[1]:
        core.monitor.broken(PSUM_GROUPS_UNTESTED, f"{what}, on other partitions", instruction)


def _kept(core: Session, instruction: str, dst: NkiTensor, adds: bool | None) -> Mask | bool:
    if adds is None and core.outlives_iteration(dst.storage):
        refuse(
            instruction,
            f"accumulate=None in a dynamic loop, into {dst.name!r} from outside of the loop",
            "the body is compiled once: it cannot overwrite in one iteration and add in the next",
            "allocate the tile in the body, or pass accumulate=False or True",
        )
    written = _history(dst).written(dst.layout, current_offset(dst))
    if adds is None or written is True:
        return written
    any_value_will_do = core.machine.generation >= V4
    if not (any_value_will_do and _history(dst).foreign_writes):
        refuse(
            instruction,
            f"accumulate=True on elements of {dst.name!r} that no matmul has written",
            f"{core.machine.name} adds to"
            f" {'written values' if any_value_will_do else 'matmul results'} only",
            "pass accumulate=False (or None) on the first matmul of the group",
        )
    return True
