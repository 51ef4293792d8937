"""Published probes of trn1: streams of loads, a loop, a search, ways to dequantise."""

from __future__ import annotations

from nkisim import Spec
from validation.kernels import dequantise, gemv_chain, small_probes
from validation.row import Row

KILN = "foxl-ai/kiln at f5a7faf, "
GEMV = KILN + "kiln/kernels/gemv.py, tools/probe_gemv.py and kiln/kernels/moe_ffn.py"
DYNAMIC = KILN + "tools/probe_nki_dynamic.py and docs/neuron-notes.md"
SEARCH = KILN + "tools/probe_lc_prims.py and docs/neuron-notes.md"
DEQUANTISE = KILN + "tools/probe_prefill_vector.py"
LAUNCH_US = 140  # the source: an empty graph takes 0.13 to 0.145 ms, a small result read back
FURTHER = 32  # blocks: the source counts from 4 to 36, here it is from 32 to 64

STREAMS = (
    Row(
        number="V25",
        title="8 products of [1, 4096] by 4096 x 4096",
        machine="trn1",
        dtype="bfloat16",
        published_us=1_022,
        published_as="262.6 GB/s of weights",
        source=GEMV,
        stream="256 loads [128, 8 KiB] through three tiles, each read by eight matmuls of 512"
        " columns; 32 transposes by identity and eight evictions between products.",
        kernel=gemv_chain.gemv_chain,
        arguments=(
            Spec((1, 4096), "bfloat16"),
            Spec((8, 4096, 4096), "bfloat16"),
            Spec((128, 128), "bfloat16"),
        ),
        note="Calls are queued in the source, so that the host's launch is hidden; the number of"
        " rows is not stated with the figure, the first of the probe's is taken.",
    ),
)


def _experts(letter: str, skipped: int, published_ms: float) -> Row:
    return Row(
        number=f"V26{letter}",
        group="data movement",
        title=f"256 loads [128, 6,528 B], {skipped} skipped",
        machine="trn1",
        dtype="uint8",
        published_us=1e3 * published_ms,
        source=DYNAMIC,
        launch_us=LAUNCH_US,
        stream="Loads at addresses from SBUF into four slots in turn; one that the source skips"
        " loads a byte.",
        kernel=small_probes.expert_loads,
        arguments=(Spec((256, 128, 6528), "uint8"), Spec((1, 256), "int32")),
        options={"skipped": skipped},
    )


SKIPS = (
    _experts("a", 0, 0.98),
    _experts("b", 64, 0.81),
    _experts("c", 128, 0.66),
    _experts("d", 256, 0.34),
)


def _iterations(letter: str, published_us: float, *, looped: bool) -> Row:
    return Row(
        number=f"V27{letter}",
        title="64 tensor_scalar [128, 64], " + ("in a loop" if looped else "unrolled"),
        machine="trn1",
        dtype="float32",
        published_us=published_us,
        source=DYNAMIC,
        launch_us=LAUNCH_US,
        stream="A load, 64 instructions on one tile in place"
        + (", one in an iteration of a device loop" if looped else "")
        + ", a store.",
        kernel=small_probes.halve_and_add,
        arguments=(Spec((128, 64), "float32"),),
        options={"iterations": 64, "looped": looped},
        note="The number of iterations is a register in the source, a number here."
        if looped
        else "",
    )


LOOPS = (_iterations("a", 257, looped=True), _iterations("b", 161, looped=False))


def _search(letter: str, width: int, published_ms: float) -> Row:
    return Row(
        number=f"V28{letter}",
        title=f"the 512 largest of {width:,}",
        machine="trn1",
        dtype="float32",
        published_us=1e3 * published_ms,
        source=SEARCH,
        launch_us=LAUNCH_US,
        stream="64 rounds of max8, nc_find_index8 and nc_match_replace8 in place.",
        kernel=small_probes.largest,
        arguments=(Spec((128, width), "float32"),),
        options={"rounds": 64},
        note="The published time has reading 256 KiB back to the host in it, the launch a few"
        " bytes.",
    )


SEARCHES = (_search("a", 512, 0.35), _search("b", 8192, 1.68), _search("c", 16384, 3.10))


def _dequantise(letter: str, title: str, published_us: float, way: str, stream: str) -> Row:
    return Row(
        number=f"V29{letter}",
        group="instruction rates",
        title=f"dequantise [128, 4096], {title}",
        machine="trn1",
        dtype="float8_e4m3",
        published_us=published_us,
        source=DEQUANTISE,
        includes_launch=False,
        stream=f"{stream} Then 32 matmuls of 64 columns and a sum of one read the block.",
        kernel=dequantise.dequantise,
        arguments=(Spec((2, 128, 32, 128), "float8_e4m3"), Spec((128, 2, 32), "float32")),
        options={"way": way},
        repeats=FURTHER,
    )


WAYS = (
    _dequantise("a", "tensor_scalar", 5.84, "vector", "64 tensor_scalar of 64 columns."),
    _dequantise(
        "b",
        "tensor_tensor",
        8.50,
        "spread",
        "Eight tensor_tensor of 512 columns with scales that are read over and over.",
    ),
    _dequantise(
        "c",
        "tensor_tensor, one operand in PSUM",
        3.74,
        "psum",
        "As row V29b with a PSUM tile in the place of the weights.",
    ),
    _dequantise("d", "Scalar", 4.43, "scalar", "64 activations of 64 columns."),
    _dequantise(
        "e",
        "Vector and Scalar",
        2.69,
        "both",
        "32 instructions as in row V29a and 32 as in row V29d.",
    ),
)

PROBE_ROWS = (*STREAMS, *SKIPS, *LOOPS, *SEARCHES, *WAYS)
