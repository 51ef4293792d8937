"""docs/reference/machine.md from nkisim/machine.py: every number, with the source beside it."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields

from manual.tables import table
from nkisim import machine as numbers
from nkisim.fabric import FABRICS, Fabric
from nkisim.machine import CONSTANTS_VERSION, MACHINES, Assumption, Machine, Timing

HEAD = """# The machine in numbers

Every hardware number of this project stands once, in `nkisim/machine.py`, with its unit in its name
and its source beside it. This page is made from that file by `python -m manual`; do not edit it.
Constants version {version}: it is raised whenever a number changes, and printed with every modelled
time.

Nothing here was measured by us. Sources are AWS's public documents, the stubs of NKI 0.6, and
published profiles; the letters are explained [below](#sources).

"""
DERIVED = """## What follows from them

Sums and products of the tables below. The peak counts a multiply-add as two operations on 128 x 128
cells at the Tensor engine's clock, for 16-bit types.

"""
HOLDS = """## What a core holds, and what one instruction may ask

Limits that nkisim checks. Breaking one raises an [error](errors.md) that names it.

"""
COSTS = """## Rates and costs

What the timing model takes as given. Cycles are of the engine in the name.

"""
OPEN = """## Open points

Nobody has published these, or sources disagree. Each has three values, *optimistic / default /
pessimistic*; `--reading` chooses. A 1 or 0 says whether something happens at all.

"""
TOGETHER = """## Cores of an instance

"""
SOURCES = """## Sources

"""


def render() -> str:
    """The whole page."""
    parts = (
        HEAD.format(version=CONSTANTS_VERSION),
        *(DERIVED, _across("", _derived())),
        *(HOLDS, _across("limit", _rows(Machine))),
        *(COSTS, _across("rate or cost", _rows(Timing, assumed=False))),
        *(OPEN, _across("open point", _rows(Timing, assumed=True))),
        *(TOGETHER, _across("", _fabric())),
        *(SOURCES, _sources()),
    )
    return "".join(part if part.endswith("\n\n") else part + "\n" for part in parts).rstrip() + "\n"


def _across(what: str, rows: Iterator[tuple[str, ...]]) -> str:
    return table((what, *MACHINES, "source"), rows, right=len(MACHINES))


def _rows(record: type, *, assumed: bool | None = None) -> Iterator[tuple[str, ...]]:
    notes = comments(record)
    for field in fields(record):
        if field.name in {"name", "timing", "accepts", "measured"}:
            continue
        owners = [m if record is Machine else m.timing for m in MACHINES.values()]
        values = [getattr(owner, field.name) for owner in owners]
        if assumed is None or assumed == isinstance(values[0], Assumption):
            yield f"`{field.name}`", *map(text_of, values), notes.get(field.name, "")


def text_of(value: object) -> str:
    """A number as it is printed; an assumption with all three values."""
    if isinstance(value, Assumption):
        return " / ".join(f"{number:g}" for number in (value.optimistic, value, value.pessimistic))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def comments(record: type) -> dict[str, str]:
    """What stands behind `#` beside each field of a class."""
    source = inspect.getsource(record)
    lines = source.splitlines()
    (body,) = ast.parse(source).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            named = node.value.id if isinstance(node.value, ast.Name) else None
            line = _constant(named) if named else lines[(node.end_lineno or node.lineno) - 1]
            found[node.target.id] = line.partition("  # ")[2]
    return found


def _constant(name: str) -> str:
    """The line of the file that states a constant which a field is given."""
    every = inspect.getsource(numbers).splitlines()
    return next((line for line in every if line.startswith(f"{name} = ")), "")


def _derived() -> Iterator[tuple[str, ...]]:
    cores = list(MACHINES.values())
    cells = [2 * core.partitions * core.stationary_max_elems * core.timing.pe_ghz for core in cores]
    yield "peak of a core, TFLOP/s", *(f"{cell / 1e3:.1f}" for cell in cells), "A1, A2, A3: clocks"
    sbuf = [core.partitions * core.sbuf_physical_bytes_per_partition / 2**20 for core in cores]
    yield "SBUF, MiB", *(f"{size:g}" for size in sbuf), "A1, A2, A3"
    psum = [core.partitions * core.psum_bytes_per_partition / 2**20 for core in cores]
    yield "PSUM, MiB", *(f"{size:g}" for size in psum), "A1"
    rates = [core.timing.dma_engines * float(core.timing.dma_bytes_per_ns) for core in cores]
    yield "DMA of a core, GB/s", *(f"{rate:.0f}" for rate in rates), "A1, BW"
    ridge = [cell / rate for cell, rate in zip(cells, rates, strict=True)]
    yield (
        "operations a byte from which the Tensor engine is the bound",
        *(f"{intensity:.0f}" for intensity in ridge),
        "the peak over DMA",
    )


def _fabric() -> Iterator[tuple[str, ...]]:
    notes = comments(Fabric)
    for field in fields(Fabric):
        values = [getattr(FABRICS[name], field.name) for name in MACHINES]
        yield f"`{field.name}`", *map(text_of, values), notes.get(field.name, "")


def _sources() -> str:
    listed = re.findall(r"^  (\S.*)$", numbers.__doc__ or "", re.MULTILINE)
    keys = (re.split(r" {2,}", line.strip(), maxsplit=1) for line in listed)
    return "".join(f"- **{key}**: {what}\n" for key, what in keys)
