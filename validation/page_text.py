"""The prose of docs/validation.md."""

from __future__ import annotations

HEAD = """# Modelled against published times

This page compares the times of nkisim's timing model with published measurements of the same
kernels. The column “modelled” is computed by the model (constants version {version}, default
reading); we ran nothing on a Neuron device. The interval is spanned by the optimistic and the
pessimistic reading, which use other values for constants that are not documented. These values come
from the sources named in `nkisim/machine.py`, not from this table. All rows of a machine use the
same constants.

This page is generated; do not edit it:

```sh
python -m validation
```

```text
{summary}
```

The error is |modelled / published - 1|. A ratio above 1 means that the modelled time is longer than
the published one. [Predictions](predictions.md) has modelled times of kernels without published
ones.

"""

SETS = """## Three sets

- **fitted**: the published time was known when constants were chosen. These are the 37 rows of
  constants 1 and 2, rows that are the evidence for a rule of the model, and two thirds of the rows
  that were new when work on constants 3 began.
- **seen**: compared once with an earlier version of the model, with instructions in the order of
  the source and without fitting. No constant was chosen by them, except for rules of constants 3
  for which some of them are the published evidence (below).
- **held out**: the remaining third, selected by a seeded draw that was committed before the kernels
  were written (`validation/draw.py`), and every row added since. They are not used to choose
  constants. Each one is predicted (`validation/predictions.json`) before it is compared; the
  column “predicted” has the date, and tells whether the modelled time is another one now.

"""

CORRELATION = """## Correlation

![Modelled against published](images/validation.svg)

The colour is the machine and the shape the group; held-out rows are filled. Pearson's correlation
of the logarithms shows whether the model orders kernels of many sizes correctly; it says little
about the error of a single row.

"""

CHOSEN = """## Choices made after comparing

A published time rarely comes with the compiled instructions. Where the source does not specify the
order of instructions, the engine or the buffers, our kernel has to choose. The first choice is made
before comparing with the published time. The rows below were changed afterwards, so they are weaker
evidence. A number in brackets is the ratio without the change, with constants 2.

"""

HISTORY = """## The constants' history

There is one set of constants per machine. The table lists what each version changed, and the rows
that were the reason.

"""

SENSITIVITY = """## Sensitivity

Each constant of the model is varied separately. An assumption is set to its optimistic and its
pessimistic value; any other number is decreased and increased by 25 % (integers by at least 1; a
switch has one other value). The columns of the machines give the lower value, the **default** and
the higher value. The other columns give the change of the median |error| (in percentage points) and
of the median ratio for {rows} fitted and seen rows, those with at most {most:,} scheduled
instructions, with constants {version}, default reading; held-out rows are not used. A
constant that changes no row by 0.01 % is **untested**: no published time here depends on it, or the
default reading does not use it. The table was made by `python -m validation sensitivity`.

"""

BOUNDS = """## Which assumptions matter

The column “bound” names the busiest engine. If a row has a large error, these assumptions are the
most likely reason:

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

- Compiler optimizations. The model executes the instructions of our kernel in program order on each
  engine; a real compiler reorders, hoists and removes instructions and selects engines. Where a
  source describes what the compiler did, our kernel does the same, and its row says so.
- Spills, bank conflicts between engines, DMA traffic in SBUF, HBM pages and refresh, instruction
  fetch.
- Clock rates other than those stated by sources.
- Variation of the launch overhead. It is one constant where the source of a row does not state it.
  It dominates rows of a few tens of microseconds, and it is not documented.

"""

NOT_HERE = """## Published figures that are not here

Limits in test suites and course thresholds are not measurements. Kernels whose instructions are not
published cannot be reproduced, and neither can those whose compiler output differs from their
source in undocumented ways, such as spills. The tiled GEMM of row 1 is also published with 20.99 ms
(ucb-bar/autocomp), 2.5 times faster than in the tutorial; no model can reproduce both.

"""

LIBRARY = """## Other people's kernels

Kernels of aws-neuron/nki-library, run in nkisim from a checkout. The table has the largest
difference from a reference and the tolerance; it is about values, not times. The note says where a
kernel was changed, or why nkisim rejects it.

"""
