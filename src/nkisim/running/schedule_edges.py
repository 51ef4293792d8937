"""`kernel.with_schedule(...)`: extra order between named instructions."""

from __future__ import annotations

from typing import Any

from nkisim.errors import refuse
from nkisim.trace import Instruction, Item, Loop, Trace

Edges = tuple[tuple[str, Any], ...]


def add_edges(trace: Trace, edges: Edges) -> None:
    """Make every named consumer wait for its producers; unknown names are refused."""
    if not edges:
        return
    by_name: dict[str, list[Instruction]] = {}
    for instruction in trace.instructions():
        if instruction.name is not None:
            by_name.setdefault(instruction.name, []).append(instruction)
    around = _loops_around(trace.items, (-1,))
    for consumer, producers in edges:
        wanted = [producers] if isinstance(producers, str) else list(producers)
        _require_names((consumer, *wanted), by_name)
        earlier = [producer for name in wanted for producer in by_name[name]]
        for instruction in by_name[consumer]:
            for producer in earlier:
                _require_order(instruction, producer, around[instruction.loop])
            instruction.after += tuple([producer.index for producer in earlier])


def _loops_around(items: list[Item], outer: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
    """For the number of every loop (-1: none) the numbers of it and of the loops around it."""
    found = {outer[-1]: outer}
    for item in items:
        if isinstance(item, Loop):
            found.update(_loops_around(item.body, (*outer, item.number)))
    return found


def _require_names(names: tuple[str, ...], by_name: dict[str, list[Instruction]]) -> None:
    for name in names:
        if name not in by_name:
            refuse(
                "with_schedule",
                f"no instruction named {name!r}",
                f"names in this kernel: {', '.join(sorted(by_name)) or 'none'}",
                "pass name= to the instruction",
            )


def _require_order(consumer: Instruction, producer: Instruction, loops: tuple[int, ...]) -> None:
    if consumer is producer or producer.loop not in loops:
        refuse(
            "with_schedule",
            f"{consumer.name!r} waits for {producer.name!r}",
            "an instruction waits for others, in its own dynamic loop or in one around it",
            "drop the edge, or put both instructions into the same loop",
        )
