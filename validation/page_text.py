"""The prose of docs/validation.md."""

from __future__ import annotations

HEAD = """# Modelled against published times

How long nkisim's timing model says published kernels take, next to what their authors measured.
Every time in the column “modelled” comes from the model (constants version {version}, default
reading); nothing here ran on a Neuron device. The interval spans the optimistic and the pessimistic
reading of what the documents leave open; its ends come from the sources named in
`nkisim/machine.py`, not from this table. All rows of a machine use the same constants.

This page is generated, do not edit it:

```sh
python -m validation
```

```text
{summary}
```

“error” is |modelled / published - 1|. A ratio above 1 means the model is slower than the device.
What we expect of kernels without published times is on the page of [predictions](predictions.md).

"""

SETS = """## Three sets

- **fitted**: constants were set with the figure in view. The 37 rows of constants 1 and 2, rows
  whose figures are the evidence for a rule of the model, and two thirds of the rows that had never
  been compared when constants 3 were begun.
- **seen**: compared once with an earlier model, in the source's order and without any fit. Nothing
  was set by them, but for rules of constants 3 whose published evidence some of them are (below).
- **held out**: the other third, by a seeded draw that was committed before their streams were
  written (`validation/draw.py`), and every row that was added since. They are not looked at while
  constants are set. Each is predicted first (`validation/predictions.json`), then compared; the
  column “predicted” gives the day, and says if the model has changed its mind since.

"""

CORRELATION = """## Correlation

![Modelled against published](images/validation.svg)

Colour is the machine, shape the group; held-out rows are filled. Pearson's correlation of the
logarithms says whether the model puts kernels in the right order over many sizes; it says little
about the error of one.

"""

CHOSEN = """## Choices made with the figure in sight

A published time rarely comes with the compiled stream. Where the source leaves the order of
instructions, the engine or the buffers open, the re-created kernel has to choose. The plain order
is taken before the figure is looked at; these rows were changed afterwards, and are to be
discounted accordingly. A number in brackets is the ratio without the choice, with constants 2.

"""

HISTORY = """## The constants' history

The constants are one set per machine. Each version says what changed, and which rows led to it.

"""

SENSITIVITY = """## Sensitivity

Every constant of the model, one at a time: an open point is put at both ends of its reading, any
other number 25 % down and up (whole numbers by at least 1; a switch has one other value). The
columns of the machines give less, **default** and more. What moves is the median |error| (in points
of a percent) and the median ratio of {rows} fitted and seen rows, those of at most {most:,}
scheduled instructions, with constants {version}, default reading; held-out rows are left alone.
A constant that moves no row by 0.01 % is **untested**: no published figure here says anything about
it, or the default reading does not use it. Made by `python -m validation sensitivity`.

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

LEFT_OUT = """## What the model leaves out

- What a compiler does to a kernel. The model takes the instruction stream of the re-created
  kernel in program order per engine; a real compiler reorders, hoists and drops instructions and
  chooses engines. Where a source tells what the compiler did, the kernel follows it, and its row
  says so.
- Spills, bank conflicts between engines, DMA traffic in SBUF, HBM pages and refresh, instruction
  fetch.
- Clocks other than those that sources state.
- Launch is one constant where the source of a row does not state it. It decides rows of a few tens
  of microseconds, and no document states it.

"""

NOT_HERE = """## Published figures that are not here

Limits in test suites and course thresholds are not measurements. Kernels whose stream is not
published cannot be re-created; nor can those whose compiler output visibly differs from their
source in ways the source does not tell, such as spills. The same tiled GEMM as row 1 is also
published at 20.99 ms (ucb-bar/autocomp), 2.5 times faster than the tutorial's figure; no single
model meets both.

"""

LIBRARY = """## Other people's kernels

Kernels of aws-neuron/nki-library, run in nkisim from a checkout: the largest difference from a
reference, and what was allowed.
Values, not times. The note says where a kernel was changed, or why it is refused.

"""
