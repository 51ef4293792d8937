"""Published steps of one optimisation: a GEMM on trn1 that Autocomp rewrote five times."""

from __future__ import annotations

from nkisim import Spec
from validation.kernels import gemm_groups, gemm_ladder
from validation.row import Row

SOURCE = (
    "ucb-bar/autocomp at dd26a56, examples/trn-tutorial/2_gemm_trace.py, which has the code and the"
    " score of every step; timed by harnesses/trn-tutorial-nki1/2_gemm_test.py"
)
_ARGUMENTS = (Spec((8192, 4096), "bfloat16"), Spec((8192, 8192), "bfloat16"))


def _step(number: str, what: str, milliseconds: float, stream: str, gemm: gemm_groups.Step) -> Row:
    return Row(
        number=number,
        title=f"GEMM 4096 x 8192 x 8192, {what}",
        machine="trn1",
        dtype="bfloat16",
        published_us=round(milliseconds * 1e3, 1),
        source=SOURCE,
        stream=stream,
        kernel=gemm_groups.grouped,
        arguments=_ARGUMENTS,
        options={"group": gemm.group, "load": gemm.load},
    )


AUTOCOMP_ROWS = (
    Row(
        number="32a",
        title="GEMM 4096 x 8192 x 8192, tiled, later compiler",
        machine="trn1",
        dtype="bfloat16",
        published_us=20_990,
        source=SOURCE,
        stream="The source of row 1.",
        kernel=gemm_ladder.tiled,
        arguments=_ARGUMENTS,
        note="Row 1 has the same source at 51.8 ms.",
    ),
    _step(
        "32b",
        "groups of 1 x 2",
        28.68,
        "Two output tiles side by side share the loads of lhs (256 B rows); a load of rhs (1 KiB"
        " rows) comes before its matmul.",
        gemm_groups.Step((1, 2)),
    ),
    _step(
        "32c",
        "groups of 2 x 2",
        11.8,
        "Four PSUM tiles; per K tile two loads of rhs, and a load of lhs before every two matmuls.",
        gemm_groups.Step((2, 2)),
    ),
    _step(
        "32d",
        "groups of 4 x 2",
        8.07,
        "Eight PSUM tiles, which are all there are; per K tile two loads of rhs and four of lhs.",
        gemm_groups.Step((4, 2)),
    ),
    _step(
        "32e",
        "groups of 4 x 2, lhs loaded in pairs",
        7.62,
        "As row 32d with two loads of lhs (512 B rows) per K tile.",
        gemm_groups.Step((4, 2), (2, 1)),
    ),
    _step(
        "32f",
        "groups of 4 x 2, one load an operand",
        6.96,
        "As row 32d with one load of rhs (2 KiB rows) and one of lhs (1 KiB rows) per K tile.",
        gemm_groups.Step((4, 2), (4, 2)),
    ),
)
