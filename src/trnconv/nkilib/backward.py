"""`conv3d_bwd` with nki-library's arguments."""

from __future__ import annotations

from typing import Any

from trnconv.errors import ShapeError
from trnconv.nkilib.call import call_of, require_one_type
from trnconv.nkilib.forward import computed_on

Triple = tuple[int, int, int]


def conv3d_bwd(  # noqa: PLR0913, PLR0917 (nki-library's signature)
    dy: Any,
    x_in: Any,
    filters: Any,
    stride: Triple = (1, 1, 1),
    padding: tuple[int, ...] = (0, 0, 0, 0, 0, 0),
    dilation: Triple = (1, 1, 1),
    compute_dx: bool = True,  # noqa: FBT001, FBT002 (the library's)
    compute_dw: bool = True,  # noqa: FBT001, FBT002
    compute_db: bool = True,  # noqa: FBT001, FBT002
    *,
    machine: str | None = None,
    cores: int | None = None,
) -> Any:
    """dy [B, C_out, D', H', W'], x_in [B, C_in, D, H, W], filters [Kd, Kh, Kw, C_in, C_out].

    The gradients that are asked for, in the order dx, dw, db; one alone is no tuple. dw has the
    layout of the filters; all have the type of the operands. The gradient of the bias is a sum that
    the kernel of dw makes on the way for arrays, and torch's own for tensors.
    """
    call = call_of(stride, padding, dilation, machine=machine, cores=cores)
    on = computed_on(x_in)
    require_one_type(dy=dy, x_in=x_in, filters=filters)
    shape = call.shape(x_in.shape, filters.shape)
    expected = (shape.batch, shape.c_out, *shape.out_sizes())
    if tuple(dy.shape) != expected:
        raise ShapeError(f"dy {tuple(dy.shape)}: the output of this convolution is {expected}.")
    if not (compute_dx or compute_dw or compute_db):
        raise ShapeError("compute_dx, compute_dw and compute_db are all False: ask for one.")
    asked = []
    if compute_dx:
        asked.append(on.input_gradient(call, dy, filters, x_in))
    if compute_dw or compute_db:
        dw, db = on.weight_gradient(call, x_in, dy, filters)
        asked += [dw] * compute_dw + [db] * compute_db
    return asked[0] if len(asked) == 1 else tuple(asked)
