"""History: the versions of the constants, what changed with each, and which rows led to it.

Whoever raises CONSTANTS_VERSION adds a version here, with `moved_by` for every change: the rows
that were looked at when the number was chosen. Those are fitted rows (`sets.py`), but for the rows
of constants 3 that had been seen before and were the published evidence for a rule.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    """One constant or rule of the model, before and after."""

    name: str
    before: str
    after: str
    why: str  # the source it now agrees with
    moved_by: tuple[str, ...] = ()  # numbers of rows; none where no single row is on record


@dataclass(frozen=True)
class Version:
    """One set of constants."""

    version: str
    summary: str  # what it is, in a sentence or two
    line: str = ""  # the statistics of the rows there were
    changes: tuple[Change, ...] = ()


VERSIONS = (
    Version(
        "1",
        "The first set.",
        "median |error| 6.0 %, within 15 %: 31/37, within 40 %: 33/37, inside interval: 22/37",
    ),
    Version(
        "2",
        "Five corrections, each to agree with the source it cites, made after the table of"
        " constants 1 had been seen; which row led to which is not on record.",
        "median |error| 6.0 %, within 15 %: 30/37, within 40 %: 33/37, inside interval: 28/37",
        (
            Change("`dma_issue_hwdge_ns`", "550", "600", "the DGE guide's figure"),
            Change("`pe_gap_cycles`, optimistic", "8", "7", "the profile's"),
            Change(
                "`vector_startup_cycles`, `scalar_startup_cycles`, optimistic",
                "16",
                "0",
                "the documented issue rule has none",
            ),
            Change("`launch_ns`, pessimistic", "12 us", "38 us", "the largest profile"),
            Change("trn1 `dma_bytes_per_ns`, optimistic", "17", "18.1", "a profile"),
        ),
    ),
    Version(
        "3",
        "What device users have published since: loops that drain, a Tensor clock that follows"
        " activity, two cores on one clock. Set with the fitted rows in view; held-out rows were"
        " drawn before their streams were written and first timed when all of this stood.",
        "",
        (
            Change(
                "limits that DMA queues share",
                "counted from the kernel's start",
                "time in which nobody asks is lost",
                "idle time had become credit: loads and stores after a phase of computing ran at"
                " 655 GB/s where 368 is the limit",
            ),
            Change(
                "iterations of hardware loops",
                "the unrolled stream and a pause an iteration",
                "everything drains at every iteration",
                "profiles of device users (KILN); an empty body costs 1.4 us on trn1, notes of"
                " nki-library say 4 to 9 us for trn2",
                ("V27a", "V27b"),
            ),
            Change(
                "`loop_iteration_ns`",
                "4 us, pessimistic 9",
                "trn1 1.4 us (to 4); trn2, trn3 4 us (1.4 to 9)",
                "the drain is now modelled by itself; with 1.4 us on trn2 looped convolutions came"
                " out 3.6 us an iteration too fast",
                ("V27a", "V60", "V63"),
            ),
            Change(
                "trn1 `pe_busy_rate`",
                "1",
                "0.875",
                "an activity throttle in a device user's profile: 2.45 columns a ns",
                ("V1", "4", "40"),
            ),
            Change(
                "`pe_quarter_rate`, `pe_half_rate`",
                "1",
                "trn1 0.55 and 0.81; trn2 0.5 and 1 (pessimistic 0.5)",
                "matmuls on a small part of the array are slower per column, and do not warm it",
                ("V7", "V9", "V10", "V49", "V53"),
            ),
            Change(
                "`dma_transpose_4_byte_rate`",
                "1",
                "0.5",
                "published transposes of four-byte types take 2.8 times those of two-byte types",
                ("V48",),
            ),
            Change(
                "`dma_ring_floor_ns`",
                "that of generated descriptors (trn1 58, trn2 43)",
                "0, pessimistic as before",
                "descriptors built beforehand carry short rows at the engines' rate in two"
                " published kernels; the tutorial of SDK 2.26 (rows 1 to 3) had a quarter of that",
                ("17", "17b", "32a", "32c", "32d"),
            ),
            Change(
                "`weight_load_fp32_cycles`",
                "456",
                "trn1 64; trn2 570",
                "on trn1 128 columns hide it; on trn2 a convolution shows 575 cycles a pass of 222"
                " columns",
                ("V5", "V13", "18"),
            ),
            Change(
                "`reciprocal_cycles_per_elem`",
                "8",
                "2.6, pessimistic 8",
                "a published profile; the documented 8 exceed its whole time",
                ("43",),
            ),
            Change(
                "trn1 `psum_port_shared`",
                "0",
                "1, optimistic 0",
                "documented for NeuronCore-v2, and seen by a device user",
            ),
            Change(
                "`dma_queue_per_direction`",
                "1",
                "1, pessimistic 0",
                "that loads never wait behind stores is an assumption",
            ),
        ),
    ),
)
