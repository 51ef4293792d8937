"""Published selective scans by length of the sequence, 4,096 channels, 16 states, fp32, trn1."""

from __future__ import annotations

from nkisim import Spec
from validation.kernels import mamba_sequence
from validation.row import Row

MAMBA = "Neuron SDK 2.32 documentation, NKI tutorial “Fused Mamba”, table of latencies by seq_len"

CHANNELS, STATES = 4096, 16
LENGTHS = (1024, 2048, 3072, 4096, 5120, 6144, 7168, 8192)
WHOLE_MS = (4.4, 8.9, 13.1, 17.6, 23.7, 27.5, 41.3, 52.2)
TILED_MS = (3.3, 6.6, 10.1, 13.3, 17.3, 19.6, 24.2, 27.8)
ONCE = (
    "delta * u once per channel tile, where the source has it in the innermost loop: the published"
    " activity of the Vector engine and, in row 45d, the published traffic have no room for more."
    " mamba_v3 in the source's order had come out at 1.3 times the published time."
)
SPILLED = 7168  # and longer: the tiles that are alive at a time exceed SBUF


def _arguments(length: int) -> tuple[Spec, ...]:
    """delta, u, a, b, c."""
    row = Spec((CHANNELS, length), "float32")
    state = Spec((STATES, length), "float32")
    return row, row, Spec((CHANNELS, STATES), "float32"), state, state


def _whole(letter: str, length: int, published_ms: float) -> Row:
    return Row(
        number=f"37{letter}",
        title=f"mamba_v2, 4096 channels, {length} steps",
        machine="trn1",
        dtype="float32",
        published_us=1e3 * published_ms,
        source=MAMBA,
        stream="512 bodies of an exponential, four Vector instructions of the whole sequence (two"
        " products, the scan, a sum) and two rows that are spread over the partitions and copied;"
        " delta * u is formed once per channel tile.",
        kernel=mamba_sequence.whole_rows,
        arguments=_arguments(length),
        chosen_after=ONCE,
        note="The published profile of 8,192 steps shows spills that the source does not spell out;"
        " they are not in this stream."
        if length >= SPILLED
        else "",
    )


def _tiled(letter: str, length: int, published_ms: float) -> Row:
    return Row(
        number=f"37{letter}",
        title=f"mamba_v3, 4096 channels, {length} steps",
        machine="trn1",
        dtype="float32",
        published_us=1e3 * published_ms,
        source=MAMBA,
        stream="512 bodies; per 512 steps an exponential, two products with an operand in PSUM, the"
        " scan, a copy of its last column and a sum; delta * u is formed once per channel tile.",
        kernel=mamba_sequence.tiled_rows,
        arguments=_arguments(length),
        chosen_after=ONCE,
    )


SEQUENCE_ROWS = (
    *map(_whole, "abcdefgh", LENGTHS, WHOLE_MS),
    *map(_tiled, "ijklmnop", LENGTHS, TILED_MS),
)
