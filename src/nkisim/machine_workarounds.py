"""Workarounds of a machine: each settles one open point the other way, under a name of its own.

`trn2+fence` is trn2 with loops that are fenced. What is planned or timed for it never passes for
the plain machine, because the name is part of every plan. Probes on a device say which to apply
(`trnconv bringup`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from nkisim.errors import NkiValidationError

AnyMachine = TypeVar("AnyMachine")
SEPARATOR: Final = "+"
MEASURED: Final = "@"  # what follows it in a name says which file of constants it has
ACCEPTS, TIMING, MACHINE = "accepts", "timing", "machine"


@dataclass(frozen=True)
class MachineWorkaround:
    """One field of a machine, of its acceptance or of its timing, and the value it gets."""

    name: str
    of: str
    field: str
    value: Any
    effect: str  # what plans and kernels do then
    evidence: str  # why the point is open: who says what


_REFUSED: Final = (
    MachineWorkaround(
        "no-loops",
        ACCEPTS,
        "loops",
        value=False,
        effect="programs are unrolled; long ones are split into several launches",
        evidence="loops of three users run on trn2 (TB, LDC, JIN); SDK#1374 is open",
    ),
    MachineWorkaround(
        "no-growing-banks",
        ACCEPTS,
        "growing_banks",
        value=False,
        effect="Winograd sums each product in a bank of its own; F(4,3) is not taken",
        evidence="nobody found continues to add to a bank that was read",
    ),
    MachineWorkaround(
        "no-psum-in-place",
        ACCEPTS,
        "psum_in_place",
        value=False,
        effect="sums leave PSUM before an activation and a residual meet: one more rounding;"
        " depthwise and Winograd kernels are not taken, nor ELU at the end of a convolution",
        evidence="in-place activations on a bank run on trn1 (KILN dsa_fused); trn2 not seen",
    ),
    MachineWorkaround(
        "dense-evictions",
        ACCEPTS,
        "strided_evictions",
        value=False,
        effect="where outputs have a step between columns, sums leave PSUM a column at a time;"
        " Winograd is not taken",
        evidence="nobody was found who evicts with a step on trn2",
    ),
    MachineWorkaround(
        "placed-by-compiler",
        ACCEPTS,
        "fixed_addresses",
        value=False,
        effect="SBUF tensors have no addresses of ours",
        evidence="a tile overlapped the compiler's scratch in a graph with two loops (KILN)",
    ),
    MachineWorkaround(
        "no-loads-ahead",
        ACCEPTS,
        "loads_ahead",
        value=False,
        effect="windows are loaded when they are asked for, sums of gradients are stored last;"
        " depthwise and Winograd kernels are not taken",
        evidence="device rule sbuf-refill-across-iterations is one report of a refill (JIN)",
    ),
    MachineWorkaround(
        "no-fp16-subnormals",
        ACCEPTS,
        "fp16_subnormals",
        value=False,
        effect="Winograd, which multiplies in fp16, is not taken",
        evidence="nobody found measured subnormals",
    ),
    MachineWorkaround(
        "no-scalar-bias",
        ACCEPTS,
        "scalar_bias",
        value=False,
        effect="the Vector engine adds biases; Winograd is not taken",
        evidence="device rule activation-copy-bias, on trn1; NKL uses it on trn2",
    ),
    MachineWorkaround(
        "no-dma-transpose",
        ACCEPTS,
        "dma_transposes",
        value=False,
        effect="the Tensor engine transposes for gradients of filters",
        evidence="the hardware generator takes 16 rows of 2 bytes, aligned to 32 bytes (JIN)",
    ),
    MachineWorkaround(
        "no-gpsimd-sums",
        ACCEPTS,
        "gpsimd_sums",
        value=False,
        effect="depthwise sums are on the Vector engine alone; Winograd is not taken",
        evidence="device rule gpsimd-elementwise, on trn1; JIN uses it on trn2",
    ),
)
WORKAROUNDS: Final = {
    workaround.name: workaround
    for workaround in (
        *_REFUSED,
        MachineWorkaround(
            "split-partitions",
            ACCEPTS,
            "split_partitions",
            value=True,
            effect="one DMA for stacked taps or outputs, where each run of partitions has its own",
            evidence="device rule dma-split-partitions: no report either way; AWS's references for"
            " writing NKI (AGD) forbid steps and flattening of partitions",
        ),
        MachineWorkaround(
            "column-tiles",
            TIMING,
            "column_tiles_parallel",
            value=1.0,
            effect="column tiles of the PE array are planned side by side, in every reading",
            evidence="NKI's documents contradict each other on it",
        ),
        MachineWorkaround(
            "activity-clock",
            TIMING,
            "pe_half_rate",
            value=0.5,
            effect="matmuls on half of the PE array or less are planned at half its rate",
            evidence="KILN V9 on trn1 shows 0.81; nobody published such a matmul of trn2",
        ),
        MachineWorkaround(
            "fence",
            ACCEPTS,
            "unfenced_loops",
            value=False,
            effect="after its loops, a kernel copies its output onto itself",
            evidence="NKL's example of a loop ends so; TB's and KILN's kernels do without",
        ),
        MachineWorkaround(
            "short-loops",
            MACHINE,
            "loop_trips_max",
            value=1024,  # half of the most that was seen to run
            effect="loops have at most 1,024 iterations; longer ones are split",
            evidence="device rule loop-trips: 2,048 run and 4,096 stall (LDC)",
        ),
    )
}


def with_workarounds(machine: AnyMachine, *names: str) -> AnyMachine:
    """The machine with workarounds on; its name says which."""
    made: Any = machine
    base, *on = made.name.split(SEPARATOR)
    for name in names:
        if name not in WORKAROUNDS:
            raise NkiValidationError(
                f"unknown workaround {name!r} of {base}",
                limit=f"known workarounds: {', '.join(WORKAROUNDS)}",
                remedy="name one of them",
            )
        workaround = WORKAROUNDS[name]
        changes = {workaround.field: workaround.value}
        if workaround.of != MACHINE:
            changes = {workaround.of: replace(getattr(made, workaround.of), **changes)}
        made = replace(made, **changes)
    named: AnyMachine = replace(made, name=SEPARATOR.join((base, *sorted({*on, *names}))))
    return named
