"""A convolution whose outputs are normed over channels in the same kernel, as an op.

It has no gradient, and there is none on the torch backend: there a model's own operators are what
is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch

from trnconv.fused_ops.rms_norm import problem as rms_norm
from trnconv.fused_ops.rms_norm.problem import under_root
from trnconv.problem.epilogue import NormEpilogue
from trnconv.pytorch.backends.arrays import Array, to_array, to_tensor
from trnconv.pytorch.backends.choice import on_neuron
from trnconv.pytorch.backends.conv_call import ConvSpec, worded, words_of
from trnconv.pytorch.backends.packed_weights import Images, kept_tables, packed_once
from trnconv.pytorch.backends.registry import compute_all
from trnconv.pytorch.operators.convolutions import empty_output, fused_call
from trnconv.pytorch.operators.norm_call import NormCall, worded_norm
from trnconv.pytorch.operators.norms import normed

Tensor = torch.Tensor
NORMED_OP: Final = "trnconv::normed_convolution"


@torch.library.custom_op(NORMED_OP, mutates_args=())
def normed_op(
    pieces: Sequence[Tensor],
    w: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    factors: Tensor | None,
    norms: Sequence[Tensor],
    numbers: list[int],
    words: str,
    norm_words: str,
    reproducible: bool,  # noqa: FBT001 (the op's schema)
    backend: str,
) -> list[Tensor]:
    """y of a fused convolution, unless its end keeps only the norm, and the norm's tensors.

    `norms` are gamma and beta, as many as there are; `norm_words` are those of a NormCall.
    """
    call, operands = fused_call(pieces, w, bias, residual, factors, numbers, words, reproducible)
    scales = scales_of(worded_norm(norm_words), tuple(norms), w.shape[0], pieces[0].device)
    return list(compute_all(call, replace(operands, scales=scales), backend))


@normed_op.register_fake
def _(
    pieces: Sequence[Tensor],
    w: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    factors: Tensor | None,
    norms: Sequence[Tensor],
    numbers: list[int],
    words: str,
    *rest: object,
) -> list[Tensor]:
    del bias, residual, factors, norms, rest
    spec = worded(numbers, words, reproducible=False)
    norm = spec.epilogue(residual=False).norm
    assert norm is not None
    y = empty_output(pieces, w, spec)
    n, c, t, *plane = y.shape
    z = [y.new_empty((n, c, frames, *plane)) for frames in norm.frames(t)]
    return [y, *z] if norm.keeps else z


@dataclass(frozen=True)
class OutputNorming:
    """A norm of outputs: which, and its gamma and beta."""

    call: NormCall
    gamma: Tensor | None
    beta: Tensor | None

    def epilogue(self, channels: int, *, keeps: bool, first: int) -> NormEpilogue:
        """What the planner is asked for."""
        added = float(np.float32(under_root(self.call.kind, self.call.eps, channels)))
        return NormEpilogue(added, self.call.activation, self.beta is not None, keeps, first)

    def outputs_of(self, y: Tensor, norm: NormEpilogue, backend: str) -> tuple[Tensor, ...]:
        """What a convolution with this norm at its end gives, of its y; a kernel norms it apart."""
        z = normed(y, self.gamma, self.beta, self.call, backend)
        parts = torch.split(z, list(norm.frames(y.shape[2])), dim=2)
        return (y, *parts) if norm.keeps else tuple(parts)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Those that there are."""
        return tuple(tensor for tensor in (self.gamma, self.beta) if tensor is not None)


def normed_convolution(
    operands: tuple[Sequence[Tensor], Tensor, Tensor | None, Tensor | None, Tensor | None],
    spec: ConvSpec,
    norming: OutputNorming,
    backend: str,
) -> tuple[Tensor, ...]:
    """`operands`: pieces, w, bias, residual and factors, as `fused_convolution` takes them."""
    pieces, w, bias, residual, factors = operands
    options = (words_of(spec), norming.call.words(), spec.reproducible, backend)
    data = (residual, factors, list(norming.tensors))
    done: list[Tensor] = normed_op(list(pieces), w, bias, *data, spec.numbers(), *options)
    return tuple(done)


@dataclass(frozen=True)
class _ScalesPacking:
    """Scales and shifts [C, 2], float32, as kernels of norms take them."""

    call: NormCall
    norms: tuple[Tensor, ...]
    channels: int
    device: torch.device

    def pack(self) -> tuple[Images, None]:
        """Made on the host."""
        gamma, beta = (*map(_on_host, self.norms), None, None)[:2]
        scales = rms_norm.scale_shift_of(*self.call.factors(self.channels, gamma, beta))
        return (to_tensor(scales).to(self.device),), None

    def rebias(self, images: Images, kept: Any) -> Images | None:
        """All is packed again: it is small."""
        del images, kept
        return None


def scales_of(
    call: NormCall, norms: tuple[Tensor, ...], channels: int, device: torch.device
) -> Tensor:
    """What the kernel multiplies and adds; on a device it stays while gamma and beta do."""
    packing = _ScalesPacking(call, norms, channels, device)
    if not on_neuron(torch.empty(0, device=device)):
        return packing.pack()[0][0]
    use = (NORMED_OP, call, channels, device)
    if not norms:
        return kept_tables(use, lambda: packing.pack()[0])[0]
    gamma, beta = (*norms, None)[:2]
    assert gamma is not None
    return packed_once((gamma, beta), use, packing)[0]


def _on_host(tensor: Tensor) -> Array:
    return to_array(tensor.float().cpu())
