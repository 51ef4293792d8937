"""What a report covers and what it leaves out, in words."""

from __future__ import annotations

from trnconv.problem.policy import DIRECT, LIMITS

_COST_MODEL = (
    "Every convolution, by the planner\u2019s cost model, with padding, activations and residuals"
    " that are fused into it."
)
_SCHEDULED = (
    "The heaviest layers also instruction by instruction: nkisim traces their kernels and schedules"
    " them on the engines of a core."
)
_NEVER_MEASURED = (
    "Measurements: nothing here ran on a Trainium. docs/validation.md compares the timing model"
    " with published measurements."
)
_BEYOND = "Reordering by the compiler, and other launches that use the same memory."
BESIDES = (
    "Norms, attention and copies, one kernel per operation. Patched models use our kernels for"
    " norms and attention; how the compiler fuses the rest is not modelled."
)
MODELLED = (
    _COST_MODEL,
    _SCHEDULED,
    "Hardware loops, DMA descriptors, semaphores and the warm-up of the Tensor engine.",
    "The baseline, in the same timing model.",
)


def left_out_of_model() -> tuple[str, ...]:
    """What else a model takes."""
    launches = "Launch overhead, and waiting for data from the host."
    return (_NEVER_MEASURED, launches, _BEYOND)


def left_out_of_layer() -> tuple[str, ...]:
    """What else a layer takes."""
    launch = "The launch of the kernel, and packing of weights, which is done once."
    return (_NEVER_MEASURED, launch, _BEYOND)


def promise(accuracy: str) -> str:
    """What an accuracy stands for."""
    if accuracy == DIRECT:
        return "direct convolutions only"
    limit = LIMITS[accuracy]
    return f"fast algorithms with an expected error of at most {limit} times a direct one\u2019s"
