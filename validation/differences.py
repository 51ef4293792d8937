"""Where modelled and published differ, in a sentence a row. Written after the comparison.

Rows have a `note` of their own for what their source leaves open; these were added once the ratio
was known, and no stream was changed for them.
"""

from __future__ import annotations

from validation.row import Row

_SHORT_MATMUL = (
    "The published rates of 128 columns are those of the unthrottled clock with hardly a gap; what"
    " makes 128 columns faster and 256 columns slower than 512 is not published."
)
_TB_FP32 = (
    "The published time leaves 1,111 ns for a matmul where four passes of 512 columns are 853, and"
    " rows 6 to 8 have 861; where the rest goes is not published."
)
_TB_TRANSPOSE = "A load that transposes seems to take a quarter longer than the documented 90 %."
_SMALL_FP32 = (
    "fp32 matmuls of few columns are published nearer to their stream time: weights of 64 columns"
    " seem to load in less than half of what 128 take."
)
_SMALL_STEP = "Short instructions of trn1 start faster here than in the rows that set the start-up."

DIFFERENCES = {
    "32b": "The same loads as row 32a's tiles, one lhs tile for two matmuls; published slower than"
    " row 32a, which loads more: another compiler, or another order.",
    "45b": "The profile has the Vector engine busy for 72 % of the time, 3.10 ms, and the model for"
    " 2.94 ms. It waits for the rest in the profile, and for 2 % of the time in the model: the"
    " stream keeps four tiles in flight, and the compiler seems to overlap fewer.",
    "V28a": "The published 5.5 us a round of three dependent steps on 512 elements have 2 us that"
    " rows V28b and V28c do not show.",
    "V29c": _SMALL_STEP,
    "V29e": "Half of the steps on each engine; published as if both worked all the time and steps"
    " started as fast as in row V29a. In the model they overlap in part.",
    "V2": "256 columns are published at 175 ns, between 48 for 128 and 219 for 512: no rate with a"
    " start-up fits all three.",
    "V3": _SHORT_MATMUL,
    "V4": "fp32 is published at 5.25 times bf16 for 512 columns and at 4 times for 128.",
    "V5": _SHORT_MATMUL,
    "V6": "A moving operand in fp8 is published 20 % slower than bf16; the documents say alike.",
    "V8": _SHORT_MATMUL,
    "V11": _SHORT_MATMUL,
    "V23": _SMALL_STEP,
    "V26d": "A skipped load is published at 1.3 us with its share of the loop, and modelled as a"
    " load of one byte.",
    "V29a": _SMALL_STEP,
    "V29d": _SMALL_STEP,
    "V45": _TB_FP32,
    "V46": _TB_FP32,
    "V47": _TB_TRANSPOSE,
    "V48": _TB_TRANSPOSE,
    "V54": _SMALL_FP32,
    "V68": _SMALL_FP32,
    "V69": _SMALL_FP32,
    "V76": _TB_FP32,
    "V77": _TB_FP32,
    "V78": _TB_FP32,
}


def difference(row: Row) -> str:
    """What is to be said about a row's ratio: its own note, and what the comparison showed."""
    return " ".join(filter(None, (row.note, DIFFERENCES.get(row.number, ""))))
