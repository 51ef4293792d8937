"""Published kernels without matrix multiplication at their heart."""

from __future__ import annotations

from nkisim import TRN2, Spec
from validation.kernels import elementwise, mamba, transpose, vector_add
from validation.row import Row

CS149 = (
    "xaviergonzalez/asst4-trainium2 at d155261 (Stanford CS149, assignment 4), writeup.md, part 1"
)
MAMBA = "Neuron SDK 2.32 documentation, NKI tutorial “Fused Mamba”, profiles"
NKIBENCH = (
    "zhang677/AccelOpt at 47e29a7, NKIBench kernels and full_complete_local/profile_results.csv"
)

_SHORT = (Spec((25_600,), "float32"), Spec((25_600,), "float32"))
_LONG = (Spec((256_000,), "float32"), Spec((256_000,), "float32"))

TRANSPOSE = (
    Row(
        number="22",
        title="transpose 1024 x 1024",
        machine="trn2",
        dtype="float32",
        published_us=86,
        source=CS149,
        stream="64 times: load 64 KiB in rows of 512 B, nc_transpose, copy, store.",
        kernel=transpose.transpose,
        arguments=(Spec((1024, 1024), "float32"),),
    ),
)

VECTOR_ADD = (
    Row(
        number="23a",
        title="vector add 25,600, tiles of 1 x 1",
        machine="trn2",
        dtype="float32",
        published_us=37_318,
        source=CS149,
        stream="25,600 times two loads, a tensor_scalar and a store of one element.",
        kernel=vector_add.by_rows,
        arguments=_SHORT,
        options={"rows": 1},
        note="76,800 DMAs at the published time are 486 ns each, those of row 23b 613 ns; the"
        f" default reading has {TRN2.timing.dma_issue_hwdge_ns:.0f} ns for both.",
    ),
    Row(
        number="23b",
        title="vector add 25,600, tiles of 128 x 1",
        machine="trn2",
        dtype="float32",
        published_us=378,
        source=CS149,
        stream="200 times two loads, a tensor_scalar and a store of 128 elements of 4 B.",
        kernel=vector_add.by_rows,
        arguments=_SHORT,
        options={"rows": 128},
        note="See row 23a: one issue time for DMAs of 1 and of 128 descriptors.",
    ),
    Row(
        number="23c",
        title="vector add 25,600, tiles of 128 x 2",
        machine="trn2",
        dtype="float32",
        published_us=186,
        source=CS149,
        stream="100 times two loads, a tensor_tensor and a store of 128 x 2 elements.",
        kernel=vector_add.by_columns,
        arguments=_SHORT,
        options={"columns": 2},
    ),
    Row(
        number="23d",
        title="vector add 25,600, one tile of 128 x 200",
        machine="trn2",
        dtype="float32",
        published_us=15,
        source=CS149,
        stream="Two loads, a tensor_tensor and a store, one after the other.",
        kernel=vector_add.by_columns,
        arguments=_SHORT,
        options={"columns": 200},
        note="Two thirds of it are launch, which is an assumption drawn from this figure: the row"
        " says little about the rest.",
    ),
    Row(
        number="24a",
        title="vector add 256,000, one tile of 128 x 2000",
        machine="trn2",
        dtype="float32",
        published_us=28,
        source=CS149,
        stream="Two loads of 1 MB, a tensor_tensor and a store, with descriptors built beforehand.",
        kernel=vector_add.by_columns,
        arguments=_LONG,
        options={"columns": 2000, "static_rings": True},
    ),
    Row(
        number="24b",
        title="vector add 256,000, two tiles of 128 x 1000",
        machine="trn2",
        dtype="float32",
        published_us=26,
        source=CS149,
        stream="As row 24a in two halves, the second loading while the first is added.",
        kernel=vector_add.by_columns,
        arguments=_LONG,
        options={"columns": 1000, "static_rings": True},
        note="Published to two digits from a profile; the launch share of a profile is not known.",
    ),
)


def _mamba(channels: int) -> tuple[Spec, ...]:
    """delta, u, a, b, c for a sequence of 512 and 16 states."""
    row = Spec((channels, 512), "float32")
    state = Spec((16, 512), "float32")
    return row, row, Spec((channels, 16), "float32"), state, state


SCANS = (
    Row(
        number="35",
        title="mamba_v1, 256 channels",
        machine="trn1",
        dtype="float32",
        published_us=172.93,
        source=MAMBA,
        stream="32 bodies of five Vector instructions of 512 elements, two of them with an operand"
        " in PSUM, in a chain.",
        kernel=mamba.states_outside,
        arguments=_mamba(256),
        note="The published time spans a whole profile with its start and end, of which the launch"
        " assumption covers a part.",
    ),
    Row(
        number="36a",
        title="mamba_v1, 4096 channels",
        machine="trn1",
        dtype="float32",
        published_us=2_340,
        source=MAMBA,
        stream="As row 35 with 512 bodies; delta and u are loaded for every body.",
        kernel=mamba.states_outside,
        arguments=_mamba(4096),
        note="The published Vector engine idles 8 % of the time, waiting for reloads that the model"
        " hides behind computation.",
    ),
    Row(
        number="36b",
        title="mamba_v2, 4096 channels",
        machine="trn1",
        dtype="float32",
        published_us=1_610,
        source=MAMBA,
        stream="512 bodies of four Vector instructions; delta * u is formed once per channel tile.",
        kernel=mamba.channels_outside,
        arguments=_mamba(4096),
        chosen_after="delta * u is formed outside of the state loop, as the published Vector time"
        " implies (about 1.35 inside).",
    ),
)

ELEMENTWISE = (
    Row(
        number="43",
        title="SiLU 4096 x 7168",
        machine="trn1",
        dtype="float32",
        published_us=1_333,
        source=NKIBENCH,
        stream="448 tiles of 128 x 512: exp and + 1 on the Scalar engine, reciprocal and product on"
        " the Vector engine.",
        kernel=elementwise.silu,
        arguments=(Spec((128, 32, 7168), "float32"),),
        note="The documented 8 cycles an element of the Vector engine's reciprocal exceed its whole"
        " published active time; the profile allows 2.6, or a part of the reciprocals elsewhere.",
    ),
    Row(
        number="44",
        title="AdamW 10944 x 2048",
        machine="trn1",
        dtype="float32",
        published_us=2_000,
        source=NKIBENCH,
        stream="344 tiles of 128 x 512: nine Scalar and six Vector instructions each, the"
        " reciprocal on the Scalar engine.",
        kernel=elementwise.adamw,
        arguments=(Spec((10944, 2048), "float32"),) * 4,
        chosen_after="The split over engines is taken from published utilisation (1.54 in plain"
        " order).",
        note="The engines' shares are published, the compiler's order of instructions is not.",
    ),
)

VECTOR_ROWS = (*TRANSPOSE, *VECTOR_ADD, *SCANS, *ELEMENTWISE)
