"""What a single launch can be: limits of NKI and of its compiler."""

from __future__ import annotations

MAX_OFFSET = 2**31 - 1  # elements: NKI's integers have 32 bits
# Static, as a compiler counts them; above it neuronx-cc gives up (NCC_EBVF030).
GRAPH_INSTRUCTIONS = 5_000_000
DEFAULT_BUDGET = 40_000  # static instructions of one launch, as a compiler counts them
# What a launch may have instead where many share a graph, longest first.
SHORTER_BUDGETS = (24_000, 16_000, 12_000, 8_000, 6_000, 4_000, 3_000, 2_000, 1_500, 1_000)
# Where even one tile of channels has no shorter program: kernels of thousands of taps.
LONGER_BUDGETS = (4 * DEFAULT_BUDGET, 16 * DEFAULT_BUDGET)
# An assumption from public notes of users, for graphs of up to 0.3 M instructions: what a compiler
# takes for an instruction, and for a hardware loop. Seconds.
COMPILE_S_AN_INSTRUCTION = 0.29e-3
COMPILE_S_A_REGION = 53.0
COMPILE_ASSUMPTION = (
    f"assumed: {1e3 * COMPILE_S_AN_INSTRUCTION:g} ms an instruction,"
    f" {COMPILE_S_A_REGION:g} s a loop"
)


def compile_s(instructions: int, regions: int) -> float:
    """How long compiling is assumed to take."""
    return COMPILE_S_AN_INSTRUCTION * instructions + COMPILE_S_A_REGION * regions
