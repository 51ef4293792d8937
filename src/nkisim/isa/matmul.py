"""The Tensor engine: nc_matmul. dst[M, N] (+)= stationary[K, M].T @ moving[K, N] in PSUM."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nkisim import enums
from nkisim.errors import refuse
from nkisim.isa import matmul_rules as rules
from nkisim.isa.contract import PSUM, SBUF, Contract, Operand
from nkisim.isa.operands import NkiInstruction, index_tensors
from nkisim.isa.product import product
from nkisim.isa.psum_write import begin_write
from nkisim.machine import V3
from nkisim.numerics import dtypes
from nkisim.running.session import Session, current
from nkisim.tensors.indirection import read_held

if TYPE_CHECKING:
    from nkisim.isa.operands import Array
    from nkisim.tensors.tensor import NkiTensor
    from nkisim.trace import Options

NC_MATMUL = Contract(
    "nc_matmul",
    (enums.engine.tensor,),
    (
        Operand("dst", PSUM, writes=True),
        Operand("stationary", SBUF, rules.INPUTS),
        Operand("moving", SBUF, rules.INPUTS),
    ),
    (
        rules.double_row,
        rules.transpose_mode,
        rules.sizes,
        rules.input_types,
        rules.sum_type,
        rules.one_bank,
        rules.tiling,
        rules.tensor_indirection,
        rules.stationary_pattern,
    ),
)


def nc_matmul(
    dst: NkiTensor,
    stationary: NkiTensor,
    moving: NkiTensor,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    accumulate: bool | None = None,
    tile_position: tuple[int, ...] = (),
    tile_size: tuple[int, ...] = (),
    perf_mode: enums.matmul_perf_mode = enums.matmul_perf_mode.none,
    name: str | None = None,
) -> NkiInstruction:
    """dst[M, N] (+)= stationary[K, M].T @ moving[K, N], fp32 products and sums.

    accumulate None: the first matmul on an element overwrites, later ones add; False overwrites;
    True adds. is_transpose puts `stationary` transposed into dst, bit for bit, over what was there;
    NeuronCore-v2 has no such mode and multiplies by `moving` like any matmul.
    """
    if not isinstance(perf_mode, enums.matmul_perf_mode):
        refuse("nc_matmul", f"perf_mode={perf_mode!r}", "a nisa.matmul_perf_mode", "use the enum")
    core = current()
    double_row = perf_mode is enums.matmul_perf_mode.double_row
    passes_through = bool(is_transpose) and core.machine.generation >= V3
    if passes_through and accumulate:
        refuse("nc_matmul", "accumulate=True with is_transpose", "one of the two", "drop one")
    facts = (
        ("transpose", passes_through),
        ("double_row", double_row),
        ("tile_size", tuple(tile_size)),
        ("tile_position", tuple(tile_position)),
    )
    where = NC_MATMUL.check(core, enums.engine.unknown, (dst, stationary, moving), facts)
    write = begin_write(core, "nc_matmul", dst, False if passes_through else accumulate)
    options: Options = (("accumulate", accumulate), ("perf_mode", perf_mode), *facts[2:])
    if is_stationary_onezero or is_moving_onezero or is_transpose:
        hint = is_stationary_onezero or is_moving_onezero
        options += (("onezero", hint), ("transpose", is_transpose))
    reads = (stationary, moving, *index_tensors(dst, stationary, moving))
    handle = core.issue("nc_matmul", where, (dst,), reads, options, name)
    if core.values and passes_through:
        write.place(core, _transposed(core, stationary, moving))
    elif core.values:
        write.add(core, _product(core, stationary, moving, 2 if double_row else 1))
    write.note()
    return NkiInstruction(handle)


def _floats(core: Session, tensor: NkiTensor, depth: int) -> Array:
    held = read_held(tensor, core.machine.quadrant_partitions)
    return dtypes.to_float32(held, tensor.dtype).reshape(depth, -1)


def _product(
    core: Session, stationary: NkiTensor, moving: NkiTensor, rows_per_partition: int
) -> Array:
    """stationary.T @ moving; double_row has two rows of K on every partition."""
    depth = stationary.shape[0] * rows_per_partition
    return product(core, _floats(core, stationary, depth), _floats(core, moving, depth))


def _transposed(core: Session, stationary: NkiTensor, moving: NkiTensor) -> Array:
    """stationary.T; the array only passes values on, so `moving` has to be the identity."""
    depth = stationary.shape[0]
    if not np.array_equal(_floats(core, moving, depth), np.eye(depth)):
        refuse(
            "nc_matmul",
            "is_transpose with a moving operand that is not the identity",
            "transpose mode moves stationary to PSUM unchanged",
            "pass an identity matrix, or drop is_transpose",
        )
    return _floats(core, stationary, depth).T
