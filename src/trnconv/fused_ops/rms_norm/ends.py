"""A norm at the end of a convolution, or as a kernel of its own: whichever is modelled faster."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from trnconv.ask.question import Question, without_norm
from trnconv.fused_ops.rms_norm.problem import RmsNorm


def norms_apart(question: Question) -> tuple[RmsNorm, ...]:
    """The kernels that norm a convolution's outputs if its own does not; none if it has no norm.

    They have the sizes of its norm, which decide their price; eps does not, and is left out.
    """
    norm, shape = question.end.norm, question.shape
    if norm is None:
        return ()
    frames, *plane = shape.out_sizes()
    return tuple(
        RmsNorm(
            shape.c_out,
            count * prod(plane),
            question.end.dtype or question.dtype,
            norm.activation,
            shape.batch,
            has_beta=norm.has_beta,
        )
        for count in norm.frames(frames)
    )


def is_faster_at_end(question: Question, cores: int, ns_of: Callable[[Question], float]) -> bool:
    """Whether a convolution with its norm takes less time than both, one after the other.

    `ns_of` gives the time of a convolution, infinity if it has no plan. Where no kernel norms alone
    there is nothing to compare with: the norm stays apart, and is torch's.
    """
    norms, machine = norms_apart(question), question.machine
    if not norms or any(norm.refuses(machine, cores) for norm in norms):
        return False
    apart = sum(norm.price(machine, cores).ns for norm in norms)
    return ns_of(question) < ns_of(without_norm(question)) + apart
