"""`kernel.with_schedule(...)`: extra order between named instructions."""

from __future__ import annotations

from typing import Any

from nkisim.errors import refuse
from nkisim.trace import Instruction, Trace

Edges = tuple[tuple[str, Any], ...]


def add_edges(trace: Trace, edges: Edges) -> None:
    """Make every named consumer wait for its producers; unknown names are refused."""
    if not edges:
        return
    by_name: dict[str, list[Instruction]] = {}
    for instruction in trace.instructions():
        if instruction.name is not None:
            by_name.setdefault(instruction.name, []).append(instruction)
    for consumer, producers in edges:
        wanted = [producers] if isinstance(producers, str) else list(producers)
        for name in (consumer, *wanted):
            if name not in by_name:
                refuse(
                    "with_schedule",
                    f"no instruction named {name!r}",
                    f"names in this kernel: {', '.join(sorted(by_name)) or 'none'}",
                    "pass name= to the instruction",
                )
        after = tuple(one.index for name in wanted for one in by_name[name])
        for instruction in by_name[consumer]:
            instruction.after += after
