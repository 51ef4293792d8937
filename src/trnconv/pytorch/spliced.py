"""trnconv::spliced_convolution: a 3-D convolution of frames that lie in several tensors.

Padding of any mode, nearest-neighbour upsampling before it and the end after it belong to the op,
so that a model need not concatenate, pad or upsample first.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trnconv.pytorch.computing import computing
from trnconv.pytorch.geometry import Splice, numbered

Tensor = torch.Tensor


@torch.library.custom_op("trnconv::spliced_convolution", mutates_args=())
def _spliced_convolution(
    pieces: Sequence[Tensor],
    w: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    numbers: list[int],
    modes: str,
    activation: str,
    accuracy: str,
    reproducible: bool,  # noqa: FBT001 (the op's schema)
    backend: str,
) -> Tensor:
    splice = numbered(numbers, modes, activation, accuracy, reproducible=reproducible)
    y: Tensor = computing(pieces[0], backend).spliced(list(pieces), w, bias, residual, splice)
    return y


@_spliced_convolution.register_fake
def _(
    pieces: Sequence[Tensor],
    w: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    numbers: list[int],
    modes: str,
    activation: str,
    accuracy: str,
    reproducible: bool,  # noqa: FBT001 (the op's schema)
    backend: str,
) -> Tensor:
    del bias, residual, backend
    splice = numbered(numbers, modes, activation, accuracy, reproducible=reproducible)
    shape = splice.shape([piece.shape for piece in pieces], w.shape)
    return pieces[0].new_empty([shape.batch, shape.c_out, *shape.out_sizes()])


def spliced_convolution(
    pieces: Sequence[Tensor],
    w: Tensor,
    bias: Tensor | None,
    splice: Splice,
    residual: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    """Pieces [N, C_in, T_i, H, W] and w [C_out, C_in / groups, KD, KH, KW] -> [N, C_out, ...]."""
    y: Tensor = _spliced_convolution(
        list(pieces),
        w,
        bias,
        residual,
        splice.numbers(),
        ",".join(splice.modes),
        splice.activation,
        splice.policy.text(),
        splice.reproducible,
        backend,
    )
    return y
