"""`python -m benchmarks training --parts step`: a training step of Wan 2.1's encoder, accounted.

diffusers' code with our convolutions runs forwards and backwards in bf16 on torch's meta device,
which has sizes and no data, and every operator is recorded. Kernels of ours have the planner's
price. All other operators are left to the compiler of a device; each has the time of its bytes at
HBM's rate and of its products at the Tensor engine's peak, as if it was a kernel of its own that
nothing holds up: what a compiler fuses is less, what it does badly is more. The optimizer is not
counted.

The step is accounted twice: with the model's own norms, which are torch's operators, and with
`trnconv.pytorch.nn.ChannelRMSNorm` in place of them and of the SiLU behind them. Needs diffusers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from math import prod
from typing import Any

from benchmarks.family import Finding
from nkisim.machine import TRN2, Reading
from trnconv.fused_ops.rms_norm.problem import MEAN, RmsNorm
from trnconv.fused_ops.rms_norm_gradient.problem import RmsNormGradient
from trnconv.geometry import ConvShape, input_gradient_shape
from trnconv.model_plan.operations import hbm_bytes_per_ns
from trnconv.planner.shares import shared_plans
from trnconv.problem.conv_problem import ConvProblem, with_plain_shape
from trnconv.problem.epilogue import ITEM_BYTES
from trnconv.problem.policy import ALWAYS_DIRECT, BF16, Policy
from trnconv.runtime.weight_gradient import gradient_problem

SIZE = (17, 256, 256)
CORES = 2
DTYPE = "bfloat16"
FORWARDS, BACKWARDS = "forwards", "backwards"
LEFT = "left to the compiler"
CONVOLUTIONS = "convolutions"
_Noted = tuple[str, Any]  # the kind of kernel, and what it is asked


def step(reading: Reading) -> Iterator[Finding]:
    """Times of each kind of kernel and of what is left, with both kinds of norms."""
    del reading  # cost models have the default reading
    for name, fused in (("the model's norms", False), ("ChannelRMSNorm", True)):
        times = {kind: ns / 1e6 for kind, ns in accounted(fused=fused).items()}
        total = sum(times.values())
        for (kind, when), seconds in sorted(times.items(), key=lambda item: -item[1]):
            yield _finding(
                f"{name}: {kind}, {when}", seconds, f"{100 * seconds / total:.0f} % of it"
            )
        left = sum(seconds for (kind, _), seconds in times.items() if kind == LEFT)
        yield _finding(f"{name}: a whole step", total, f"{100 * left / total:.0f} % {LEFT}")


def recomputed(reading: Reading) -> Iterator[Finding]:
    """The same step with `keep_convolutions`: what it keeps, and what it computes again."""
    del reading
    noted, left = noted_step(fused=True)
    kept = sum(
        calls * shape.batch * shape.c_out * prod(shape.out_sizes()) * ITEM_BYTES[DTYPE]
        for (_, (kind, shape)), calls in noted.items()
        if kind == CONVOLUTIONS
    )
    norms = sum(
        calls * _PRICES[kind](problem)
        for (when, (kind, problem)), calls in noted.items()
        if when == FORWARDS and kind != CONVOLUTIONS
    )
    name = "ChannelRMSNorm, convolutions kept"
    size = "x".join(map(str, SIZE))
    yield Finding(
        name=f"Wan 2.1's encoder, {size}, {name}: kept",
        machine=TRN2.name,
        figure=kept / 2.0**30,
        unit="GiB",
        remark="outputs of convolutions alone",
    )
    yield _finding(f"{name}: computed again", (norms + left[FORWARDS]) / 1e6, "norms, and the rest")


def _finding(name: str, ms: float, remark: str) -> Finding:
    size = "x".join(map(str, SIZE))
    return Finding(
        name=f"Wan 2.1's encoder, {size}, {name}",
        machine=TRN2.name,
        figure=ms,
        unit="ms",
        remark=remark,
    )


def accounted(*, fused: bool) -> dict[tuple[str, str], float]:
    """Nanoseconds by kind and by when, of one step of a batch of one."""
    noted, left = noted_step(fused=fused)
    accounted_ns: dict[tuple[str, str], float] = {}
    for (when, (kind, problem)), calls in noted.items():
        key = (kind, when)
        accounted_ns[key] = accounted_ns.get(key, 0.0) + calls * _PRICES[kind](problem)
    return {**accounted_ns, **{(LEFT, when): ns for when, ns in left.items()}}


@cache  # parts of the command ask for the same step
def noted_step(*, fused: bool) -> tuple[Counter[tuple[str, _Noted]], dict[str, float]]:
    """Problems of our kernels, and ns of everything else, forwards and backwards."""
    import torch  # noqa: PLC0415 (for this part only)
    from diffusers import AutoencoderKLWan  # noqa: PLC0415

    from benchmarks.operator_tally import OperatorTally  # noqa: PLC0415
    from trnconv.pytorch import patch_  # noqa: PLC0415

    with torch.device("meta"):
        vae = AutoencoderKLWan().bfloat16()
        if fused:
            fuse_norms(vae.encoder)
    patch_(vae, backend="nkisim")
    x = torch.empty(1, 3, *SIZE, device="meta", dtype=torch.bfloat16)
    tally = OperatorTally()
    with tally:
        tally.when = FORWARDS
        loss = vae.encode(x).latent_dist.parameters.sum()
        tally.when = BACKWARDS
        loss.backward()
    return tally.kernels, {when: _left_ns(seen) for when, seen in tally.others.items()}


def fuse_norms(encoder: Any) -> None:
    """ChannelRMSNorm for each norm of diffusers' blocks and the SiLU behind it, where there is one.

    Attention has a norm over an image's channels without one.
    """
    from torch.nn import Identity  # noqa: PLC0415

    from trnconv.pytorch import nn  # noqa: PLC0415

    for block in encoder.modules():
        activated = hasattr(block, "nonlinearity")
        for name, child in list(block.named_children()):
            if type(child).__name__ == "WanRMS_norm":
                activation = "silu" if activated else "identity"
                norm = nn.ChannelRMSNorm(child.gamma.numel(), eps=1e-12, activation=activation)
                norm.backend = "nkisim"
                setattr(block, name, norm.bfloat16())
        if activated:
            block.nonlinearity = Identity()


def _left_ns(seen: Counter[tuple[int, int]]) -> float:
    """Operators by their bytes and multiply-adds, each at the rate of what it has more of."""
    timing = TRN2.timing.read(Reading.default)
    moved = hbm_bytes_per_ns(TRN2, CORES)
    multiplied = CORES * TRN2.partitions**2 * timing.pe_columns_per_ns
    return sum(
        calls * max(moved_bytes / moved, macs / multiplied)
        for (moved_bytes, macs), calls in seen.items()
    )


def _pair_ns(problem: ConvProblem) -> float:
    """The core that ends last, by the cost model."""
    return max(priced.cost.total_ns for priced in shared_plans(problem))


def _forward_ns(shape: ConvShape) -> float:
    """Calls with gradients are direct."""
    return _pair_ns(with_plain_shape(ConvProblem(shape, TRN2, DTYPE, policy=ALWAYS_DIRECT)))


def _input_ns(shape: ConvShape) -> float:
    problem = ConvProblem(input_gradient_shape(shape), TRN2, DTYPE, policy=Policy(BF16))
    return _pair_ns(with_plain_shape(problem))


def _filter_ns(shape: ConvShape) -> float:
    return _pair_ns(gradient_problem(shape, TRN2, DTYPE))


def _norm_ns(problem: tuple[tuple[int, ...], str]) -> float:
    return _norm(problem).price(TRN2, CORES).ns


def _norm_gradient_ns(problem: tuple[tuple[int, ...], str]) -> float:
    return RmsNormGradient(_norm(problem)).price(TRN2, CORES).ns


def _norm(problem: tuple[tuple[int, ...], str]) -> RmsNorm:
    (n, c, *sizes), activation = problem
    return RmsNorm(c, prod(sizes), DTYPE, activation, n, variant=MEAN)


_PRICES: dict[str, Callable[[Any], float]] = {
    CONVOLUTIONS: _forward_ns,
    "input gradients": _input_ns,
    "weight gradients": _filter_ns,
    "norms and SiLU": _norm_ns,
    "gradients of norms and SiLU": _norm_gradient_ns,
}
