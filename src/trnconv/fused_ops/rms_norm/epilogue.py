"""A norm in a convolution's epilogue, or as a kernel of its own: whichever is modelled faster."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from trnconv.fused_ops.rms_norm.problem import RmsNorm
from trnconv.problem.conv_problem import ConvProblem, without_norm


def norms_apart(problem: ConvProblem) -> tuple[RmsNorm, ...]:
    """The kernels that norm a convolution's outputs if its own does not; none if it has no norm.

    They have the sizes of its norm, which decide their price; eps does not, and is left out.
    """
    norm, shape = problem.epilogue.norm, problem.shape
    if norm is None:
        return ()
    frames, *plane = shape.out_sizes()
    return tuple(
        RmsNorm(
            shape.c_out,
            count * prod(plane),
            problem.epilogue.dtype or problem.dtype,
            norm.activation,
            shape.batch,
            has_beta=norm.has_beta,
        )
        for count in norm.frames(frames)
    )


def is_faster_fused(
    problem: ConvProblem, cores: int, ns_of: Callable[[ConvProblem], float]
) -> bool:
    """Whether a convolution with its norm takes less time than both, one after the other.

    `ns_of` gives the time of a convolution, infinity if it has no plan. Where no kernel norms alone
    there is nothing to compare with: the norm stays apart, and is torch's.
    """
    norms, machine = norms_apart(problem), problem.machine
    if not norms or any(norm.refuses(machine, cores) for norm in norms):
        return False
    apart = sum(norm.price(machine, cores).ns for norm in norms)
    return ns_of(problem) < ns_of(without_norm(problem)) + apart
