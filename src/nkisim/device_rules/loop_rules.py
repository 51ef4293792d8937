"""Rules about loops on the device, and about the programs of a launch."""

from __future__ import annotations

from typing import Final

from nkisim.device_rules.rule import DeviceRule, Strength
from nkisim.machine import V3, V4

_LNC: Final = (V3, V4)

PSUM_ACROSS_LOOP: Final = DeviceRule(
    name="psum-across-loop",
    strength=Strength.S,
    forbids="a PSUM tensor from outside of a device loop, written by the Tensor engine inside it",
    reported="does not compile: NCC_IBIR092, a live-in or live-out location that is not in DRAM."
    " PSUM that only the Scalar engine writes compiles, and so does state in SBUF or HBM",
    source="KILN tools/probe_nki_loop_liveout.py, kernels/dsa_long_pipe_x.py; AGD has the same as"
    " a rule (PSUM tiles inside the body)",
    seen_on="trn1, nki 0.6.0",
    remedy="allocate the PSUM tensor in the body of the loop",
)
PSUM_IN_TWO_LOOPS: Final = DeviceRule(
    name="psum-in-two-loops",
    strength=Strength.S,
    forbids="one PSUM tensor mentioned in two loop regions",
    reported="does not compile: NCC_IBIR092. Every region has PSUM tensors of its own; SBUF tiles"
    " may be shared",
    source="KILN moe_prefill.py, moe_dedupe.py, dsa_prefill.py, dsa_fused_c.py (five kernels)",
    seen_on="trn1, nki 0.6.0",
    remedy="allocate a PSUM tensor in the body of each loop",
)
SBUF_REFILL: Final = DeviceRule(
    name="sbuf-refill-across-iterations",
    strength=Strength.M,
    forbids="SBUF from outside of a loop, refilled for the next iteration with nothing in the same"
    " iteration that waits for the refill",
    reported="wrong values on the device, right ones in the simulator; work in the same iteration"
    " that waits for the refill cured it. Accumulators that one engine alone touches are fine, and"
    " so are offset cells that are counted up in place (TB, NKL). The cause was not proven",
    source="JIN test/kernel_depcheck (moe_fused_fp8 v8d)",
    seen_on="trn2 LNC2, October 2026",
    remedy="read the refilled tile in the same iteration, or load it at the top of the iteration"
    " that uses it: an iteration is a barrier, so loading ahead gains nothing",
)
LOOP_TRIPS: Final = DeviceRule(
    name="loop-trips",
    strength=Strength.M,
    forbids="a device loop of more trips than machine.loop_trips_max",
    reported="4,096 trips stall, 2,048 run",
    source="LDC nki_indexer.py, nki_mla.py (_MAX_RUNTIME_LOOP_TRIPS, pinned by its tests)",
    seen_on="trn2 LNC2, nki 0.6",
    remedy="split the loop into several",
    generations=(V3,),
)
ZERO_TRIPS: Final = DeviceRule(
    name="zero-trips-on-two-cores",
    strength=Strength.X,
    forbids="a device loop of no trips in a launch on two cores",
    reported="LDC forces at least one trip because of a deadlock; in KILN one program runs none,"
    " joins a core_barrier, and works",
    source="LDC nki_indexer.py; KILN at its commit c0391ae",
    seen_on="trn2 LNC2, nki 0.6",
    remedy="run at least one trip in both programs",
    generations=_LNC,
)
NESTED_LOOPS: Final = DeviceRule(
    name="nested-loops",
    strength=Strength.X,
    forbids="a device loop inside a device loop",
    reported="a dominance error with dynamic_range on trn1; NCC_ICFG018 on 0.5.0, which AWS reports"
    " to compile on 0.6.0; LDC nests fori_loop on trn2",
    source="KILN; SDK#1346; LDC",
    seen_on="trn1 and trn2, nki 0.5.0 and 0.6",
    remedy="unroll the inner loop",
)
PROGRAMS_DIFFER: Final = DeviceRule(
    name="programs-differ",
    strength=Strength.S,
    forbids="other loops, or other trips of a loop, in the two programs of a launch",
    reported="other basic blocks do not compile: NCC_IXGM002; other trips hang",
    source="KILN; LDC; NKL keeps the trips of its segmented attention equal",
    seen_on="trn2 LNC2, nki 0.6",
    remedy="give both programs the same loops with the same trips, and let them differ in offsets",
    generations=_LNC,
)
LOOP_ON_ONE_PROGRAM: Final = DeviceRule(
    name="loop-on-one-program",
    strength=Strength.S,
    forbids="a device loop in a launch on one program where a logical core has two",
    reported="does not compile: NCC_IXGM002, core 1 has one basic block",
    source="SDK#1388; KILN; LDC; TB",
    seen_on="trn2 LNC2 (trn2.3xlarge among them), nki 0.6.0",
    remedy="launch kernel[2], or compile for logical cores of one: lnc=1 here,"
    " NEURON_LOGICAL_NC_CONFIG=1 there",
    generations=_LNC,
)
GRID_ABOVE_LNC: Final = DeviceRule(
    name="grid-above-lnc",
    strength=Strength.M,
    forbids="a launch on two programs where a logical core has one",
    reported="no error; the half of core 0 alone is computed",
    source="TB, comments of its kernels",
    seen_on="trn2",
    remedy="compile for logical cores of two (lnc=2, NEURON_LOGICAL_NC_CONFIG=2), or launch on one"
    " program",
    generations=_LNC,
)
GRID_BELOW_LNC: Final = DeviceRule(
    name="grid-below-lnc",
    strength=Strength.W,
    forbids="a launch on one program where a logical core has two, without loops",
    reported="nothing so far: AWS announces that a grid that is not the LNC becomes an error",
    source="AGD nki-language-constraint.md",
    seen_on="announced for versions after nki 0.6",
    remedy="launch kernel[2], or pass lnc=1",
    generations=_LNC,
)

LOOP_RULES: Final = (
    PSUM_ACROSS_LOOP,
    PSUM_IN_TWO_LOOPS,
    SBUF_REFILL,
    LOOP_TRIPS,
    ZERO_TRIPS,
    NESTED_LOOPS,
    PROGRAMS_DIFFER,
    LOOP_ON_ONE_PROGRAM,
    GRID_ABOVE_LNC,
    GRID_BELOW_LNC,
)
