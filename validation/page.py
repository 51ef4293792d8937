"""docs/validation.md from outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from nkisim.machine import CONSTANTS_VERSION
from validation.outcome import Outcome
from validation.summary import summarise

HEAD = """# Modelled against published times

How long nkisim's timing model says published kernels take, next to what their authors measured.
Every time in the column “modelled” comes from the model (constants version {version}, default
reading); nothing here ran on a Neuron device. The interval spans the optimistic and the pessimistic
reading of what the documents leave open. All rows of a machine use the same constants, and none was
fitted to a row; `launch_ns` alone was read off a published figure that is also a row (23d).

This page is generated, do not edit it:

```sh
python -m validation
```

```text
{summary}
```

“error” is |modelled / published - 1|. A ratio above 1 means the model is slower than the device.
What we wanted: a median of at most 10 %, three quarters within 15 %, all within 40 %, and 80 %
inside the interval. The first two are reached, the last two are not. Rows 2, 3, 17 and 43 are the
ones beyond 40 %; what each lacks is said in its row. It would take profiles of single DMA
descriptors for short rows on trn1 and trn2, and the compiled streams, to tell a wrong constant from
a wrong stream.

"""

LEFT_OUT = """## What the model leaves out

- What a compiler does to a kernel. The model takes the instruction stream of the re-created
  kernel in program order per engine; a real compiler reorders, hoists and drops instructions and
  chooses engines. Where a source tells what the compiler did, the kernel follows it, and its row
  says so.
- Spills, bank conflicts between engines, DMA traffic in SBUF, HBM pages and refresh, the other
  core on the same HBM, instruction fetch.
- Clocks other than the documented ones. Only the slow start of the Tensor engine on trn2 is
  modelled.
- Launch is one constant. It decides rows of a few tens of microseconds, and no document states
  it.

"""

TRUST = """## How far to trust the fit

The constants are one set per machine and come from the sources named in `nkisim/machine.py`. Five
of them were corrected after a first table had been seen, each to agree with the source it cites
(CHANGELOG.md, "Model changes"); that first table, with constants 1, read: median |error| 6.0 %,
within 15 %: 31/37, within 40 %: 33/37, inside interval: 22/37.

A published time rarely comes with the compiled stream. Where the source leaves the order of
instructions, the engine or the buffers open, the re-created kernel has to choose, and some choices
were made with the published figure or profile in sight. Discount these rows accordingly:

- 9, 10b, 12: PSUM is cleared ahead of its use (in the source's order row 9 comes to about 3 times
  the published time, 10b to 1.45); in 9 and 12 the Scalar engine copies out.
- 11a: the one buffer of the source is rotated, as a compiler would (about 2.6 without). 11b: the
  blocks follow from one sentence of the source.
- 27 to 31: products are issued ahead of sums and one row is loaded ahead (row 31 in plain order:
  1.43); 29: sums are grouped by four, which the post shows for step 5 only.
- 36b: delta * u is formed outside of the state loop, as the published Vector time implies (about
  1.35 inside).
- 39, 45: which operand is read again is taken from the published traffic (45 as written: 1.15).
- 44: the split over engines is taken from published utilisation (in plain order: 1.54).
- 7, 8: the published blocks do not fit SBUF without spilling; the blocks here do.

"""

BOUNDS = """## Which assumptions matter

The column “bound” names the busiest engine. What to doubt first when a row is off:

| bound | assumptions that move the row (`nkisim/machine.py`) |
| --- | --- |
| tensor | `pe_gap_cycles`, `weight_load_cycles`, `weight_load_fp32_cycles`, `pe_cold_rate` |
| vector | `vector_startup_cycles`, `vector_latency_cycles`, `reciprocal_cycles_per_elem` |
| scalar | `scalar_startup_cycles`, `scalar_latency_cycles` |
| dma | `dma_descriptor_floor_ns`, `dma_partition_bound` |
| dma issue | `dma_issue_static_ns`, `dma_issue_hwdge_ns`, `dma_issue_queues` |
| latency | `launch_ns`, `dma_start_ns`, `dma_done_ns`, `semaphore_ns` |

"""

NOT_HERE = """## Published figures that are not here

Limits in test suites and course thresholds are not measurements. Kernels whose stream is not
published cannot be re-created; nor can those whose compiler output visibly differs from their
source in ways the source does not tell, such as spills. The same tiled GEMM as row 1 is also
published at 20.99 ms (ucb-bar/autocomp), 2.5 times faster than the tutorial's figure; no single
model meets both.

"""


def render(outcomes: Sequence[Outcome], library: Sequence[dict[str, Any]] = ()) -> str:
    """The whole page."""
    head = HEAD.format(version=CONSTANTS_VERSION, summary=summarise(outcomes))
    sections = (head, _table(outcomes), TRUST, _streams(outcomes), BOUNDS, LEFT_OUT, NOT_HERE)
    return "".join(sections) + (_library(library) if library else "")


def _table(outcomes: Sequence[Outcome]) -> str:
    columns = (
        *("row", "kernel", "machine", "published", "modelled", "ratio"),
        *("interval", "bound", "where they differ"),
    )
    lines = [_cells(outcome) for outcome in outcomes]
    return "## Rows\n\n" + _markdown_table(columns, lines) + "\n"


def _cells(outcome: Outcome) -> tuple[str, ...]:
    row = outcome.row
    published = duration(row.published_us)
    if row.published_as:
        published = f"{row.published_as} = {published}"
    low, high = outcome.interval_us
    mark = "" if outcome.inside else " (outside)"
    return (
        row.number,
        row.title,
        f"{row.target} {row.dtype}",
        published,
        duration(outcome.modelled_us),
        f"{outcome.ratio:.2f}",
        f"{duration(low)} to {duration(high)}{mark}",
        outcome.bound,
        row.note,
    )


def duration(us: float) -> str:
    """A time with its unit, in four digits."""
    value, unit = (us / 1e3, "ms") if us >= 1e3 else (us, "us")
    digits = 1 if value >= 100 else 2
    return f"{value:.{digits}f} {unit}"


def _streams(outcomes: Sequence[Outcome]) -> str:
    lines = ["## Streams and sources", ""]
    for outcome in outcomes:
        row = outcome.row
        span = "with launch" if row.includes_launch else "without launch"
        lines.append(f"- **{row.number}** {row.stream} Source: {row.source}; {span}.")
    return "\n".join(lines) + "\n\n"


def _library(entries: Sequence[dict[str, Any]]) -> str:
    intro = (
        "## Other people's kernels\n\n"
        "Kernels of aws-neuron/nki-library, run in nkisim from a checkout: the largest difference"
        " from a reference, and what was allowed.\nValues, not times. The note says where a kernel"
        " was changed, or why it is refused.\n\n"
    )
    columns = ("kernel", "machine", "commit", "cases", "largest error", "tolerance", "note")
    return intro + _markdown_table(columns, map(_library_cells, entries))


def _library_cells(entry: dict[str, Any]) -> tuple[str, ...]:
    error, tolerance = (
        "-" if entry[name] is None else str(entry[name]) for name in ("max_error", "tolerance")
    )
    commit, target = entry["commit"][:7], entry.get("target", "")
    return (entry["kernel"], target, commit, str(entry["cases"]), error, tolerance, entry["note"])


def _markdown_table(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [columns, ["---"] * len(columns), *lines]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in rows)
