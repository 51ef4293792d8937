"""Rules that several instructions share; each looks at one Call and refuses or stays silent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nkisim.memory.layout import MemoryRegion

if TYPE_CHECKING:
    from nkisim.isa.call import Call, Rule


def same_partitions(*names: str) -> Rule:
    """The named operands that are present have equal partition counts."""

    def rule(call: Call) -> None:
        counts = {name: call[name].shape[0] for name in names if name in call}
        if len(set(counts.values())) > 1:
            call.refuse(
                f"partition counts {counts}",
                "operands have the same number of partitions",
                "slice them to the same partitions",
            )

    return rule


def same_elements(*names: str) -> Rule:
    """The named operands have equal element counts per partition (ranks may differ)."""

    def rule(call: Call) -> None:
        counts = {name: call[name].layout.elems for name in names if name in call}
        if len(set(counts.values())) > 1:
            call.refuse(
                f"elements per partition {counts}",
                "operands have the same number of elements per partition",
                "slice or broadcast them to the same size",
            )

    return rule


def same_dtype(*names: str) -> Rule:
    """The named operands have one dtype."""

    def rule(call: Call) -> None:
        kinds = {name: call[name].dtype for name in names if name in call}
        if len(set(kinds.values())) > 1:
            call.refuse(f"dtypes {kinds}", "operands have the same dtype", "cast one of them")

    return rule


def not_both_in_psum(*names: str) -> Rule:
    """At most one of the named operands is read from PSUM."""

    def rule(call: Call) -> None:
        inside = [n for n in names if n in call and call[n].buffer is MemoryRegion.psum]
        if len(inside) > 1:
            call.refuse(
                f"{' and '.join(inside)} are in psum",
                "one full-size input may come from PSUM",
                "copy one of them to SBUF",
            )

    return rule


def one_column(*names: str) -> Rule:
    """The named operands are (P, 1) vectors."""

    def rule(call: Call) -> None:
        for name in names:
            if name in call and call[name].layout.elems != 1:
                call.refuse(
                    f"{name} has {call[name].layout.elems} elements per partition",
                    "1 element per partition",
                    "pass a (P, 1) tile",
                )

    return rule
