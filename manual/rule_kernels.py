"""For every device rule a kernel that breaks it, and a neighbour that does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.enums import oob_mode


@dataclass(frozen=True)
class Launch:
    """A kernel, on so many programs, compiled for logical cores of so many."""

    kernel: Callable[[], Any]
    machine: str = "trn2"
    programs: int = 1
    lnc: int = 1


@dataclass(frozen=True)
class Pair:
    """What breaks a rule, and what stands beside it and does not."""

    breaks: Launch
    keeps: Launch


def tile(shape=(128, 128), dtype=nl.float32):
    """A tile of zeros in SBUF."""
    return nl.zeros(shape, dtype)


def bank(shape=(128, 128), dtype=nl.float32):
    """A tensor in PSUM."""
    return nl.ndarray(shape, dtype, nl.psum)


def far(shape, dtype=nl.float32):
    """A tensor of zeros in HBM."""
    return nl.zeros(shape, dtype, nl.private_hbm)


def bank_of_the_kernel():
    weights, sums = tile(), bank()

    def body(_):
        nisa.nc_matmul(sums, weights, weights, accumulate=False)

    nl.fori_loop(0, 4, body)


def bank_of_the_body():
    weights = tile()

    def body(_):
        nisa.nc_matmul(bank(), weights, weights, accumulate=False)

    nl.fori_loop(0, 4, body)


def one_bank_two_loops():
    data, shared = tile(), bank()
    nl.fori_loop(0, 4, lambda _: nisa.activation(shared, nl.copy, data))
    nl.fori_loop(0, 4, lambda _: nisa.activation(shared, nl.copy, data))


def a_bank_each_loop():
    data = tile()
    nl.fori_loop(0, 4, lambda _: nisa.activation(bank(), nl.copy, data))
    nl.fori_loop(0, 4, lambda _: nisa.activation(bank(), nl.copy, data))


def refill_at_the_end():
    x, window, result = far((4, 128, 16)), tile((128, 16)), tile((128, 16))

    def body(iteration):
        nisa.tensor_copy(result, window)
        nisa.dma_copy(window, x.select(0, iteration))

    nl.fori_loop(0, 4, body)


def load_at_the_top():
    x, window, result = far((4, 128, 16)), tile((128, 16)), tile((128, 16))

    def body(iteration):
        nisa.dma_copy(window, x.select(0, iteration))
        nisa.tensor_copy(result, window)

    nl.fori_loop(0, 4, body)


def too_many_trips():
    cell = tile((1, 1))
    nl.fori_loop(0, 2049, lambda _: nisa.memset(cell, 0.0))


def as_many_trips_as_run():
    cell = tile((1, 1))
    nl.fori_loop(0, 2048, lambda _: nisa.memset(cell, 0.0))


def no_trips():
    cell = tile((1, 1))
    nl.fori_loop(0, 0, lambda _: nisa.memset(cell, 0.0))


def loop_in_loop():
    cell = tile((1, 1))

    def outer(_):
        nl.fori_loop(0, 2, lambda _: nisa.memset(cell, 0.0))

    nl.fori_loop(0, 2, outer)


def range_in_loop():
    cell = tile((1, 1))

    def outer(_):
        for _iteration in range(2):
            nisa.memset(cell, 0.0)

    nl.fori_loop(0, 2, outer)


def trips_of_the_program():
    cell = tile((1, 1))
    nl.fori_loop(0, 2 + nl.program_id(0), lambda _: nisa.memset(cell, 0.0))


def offsets_of_the_program():
    cell = tile((1, 1))
    first = 2 * nl.program_id(0)
    nl.fori_loop(first, first + 2, lambda _: nisa.memset(cell, 0.0))


def a_loop():
    cell = tile((1, 1))
    nl.fori_loop(0, 2, lambda _: nisa.memset(cell, 0.0))


def no_loop():
    cell = tile((1, 1))
    for _ in range(2):
        nisa.memset(cell, 0.0)


def two_groups_in_a_bank():
    weights, sums = tile(), bank((128, 256))
    for step in range(2):
        nisa.nc_matmul(sums[:, :128], weights, weights, accumulate=step > 0)
        nisa.nc_matmul(sums[:, 128:], weights, weights, accumulate=step > 0)


def a_bank_each_group():
    weights, left, right = tile(), bank(), bank()
    for step in range(2):
        nisa.nc_matmul(left, weights, weights, accumulate=step > 0)
        nisa.nc_matmul(right, weights, weights, accumulate=step > 0)


def none_on_a_used_bank():
    weights, sums, out = tile(), bank(), tile()
    for _ in range(2):
        nisa.nc_matmul(sums, weights, weights)
        nisa.tensor_copy(out, sums)


def none_on_a_fresh_bank():
    weights, out = tile(), tile()
    for _ in range(2):
        sums = bank()
        nisa.nc_matmul(sums, weights, weights)
        nisa.tensor_copy(out, sums)


def stationary_in_two_dims():
    weights, moving = tile((128, 8, 16)), tile((128, 64))
    nisa.nc_matmul(bank((32, 64)), weights[:, 0:4, 0:8], moving, accumulate=False)


def stationary_in_one_dim():
    weights, moving = tile((128, 8, 16)), tile((128, 64))
    nisa.nc_matmul(bank((32, 64)), weights[:, 0:2, :], moving, accumulate=False)


def transpose_into_bf16():
    nisa.nc_transpose(bank(dtype=nl.bfloat16), tile(dtype=nl.bfloat16))


def transpose_into_fp32():
    nisa.nc_transpose(bank(), tile(dtype=nl.bfloat16))


def offset_beyond_the_dimension():
    x, row = far((8, 4, 16)), tile((1, 16))

    def body(number):
        nisa.dma_copy(row, x.ap([[16, 1], [1, 16]], scalar_offset=number, indirect_dim=1))

    nl.fori_loop(0, 6, body)


def offset_in_a_flat_view():
    x, row = far((8, 4, 16)).reshape((512,)), tile((1, 16))

    def body(element):
        nisa.dma_copy(row, x.ap([[16, 1], [1, 16]], scalar_offset=element, indirect_dim=0))

    nl.fori_loop(0, 96, body, 16)


def rows_backwards_by_dma():
    nisa.dma_copy(tile((8, 16)), far((8, 16)).ap([[-16, 8], [1, 16]], offset=112))


def columns_backwards_by_dma():
    nisa.dma_copy(tile((8, 16)), far((8, 16)).ap([[16, 8], [-1, 16]], offset=15))


def columns_backwards_by_copy():
    loaded = tile((8, 16))
    nisa.dma_copy(loaded, far((8, 16)))
    nisa.tensor_copy(tile((8, 16)), loaded.ap([[16, 8], [-1, 16]], offset=15))


def partitions_in_two_dims():
    nisa.dma_copy(tile((8, 16)), far((4, 2, 16)).permute((1, 0, 2)))


def a_dma_each_half():
    x, loaded = far((4, 2, 16)), tile((8, 16))
    for half in range(2):
        nisa.dma_copy(loaded[4 * half : 4 * half + 4], x.select(1, half))


def long_step_by_dma():
    row = tile((1, 50_000), nl.bfloat16)
    nisa.dma_copy(far((1, 2), nl.bfloat16), row.ap([[50_000, 1], [40_000, 2]]))


def short_step_by_dma():
    row = tile((1, 50_000), nl.bfloat16)
    nisa.dma_copy(far((1, 2), nl.bfloat16), row.ap([[50_000, 1], [30_000, 2]]))


def copy_with_bias():
    data = tile()
    nisa.activation(data, nl.copy, data, bias=tile((128, 1)))


def add_on_vector():
    data = tile()
    nisa.tensor_scalar(data, data, nl.add, tile((128, 1)))


def add_on_gpsimd():
    data = tile()
    nisa.tensor_tensor(data, data, data, nl.add, engine=nisa.engine.gpsimd)


def sum_on_vector():
    data = tile()
    nisa.tensor_tensor(data, data, data, nl.add, engine=nisa.engine.vector)


def scratch_for_both():
    nisa.dma_copy(nl.ndarray((128, 128), nl.float32, nl.shared_hbm), tile())


def scratch_of_its_own():
    result = nl.ndarray((128, 128), nl.float32, nl.shared_hbm)
    nisa.dma_copy(far((128, 128)), tile())
    nisa.dma_copy(result, tile())
    return result


def copy_at_an_offset():
    data, column = tile((128, 4, 8)), tile((128, 8))
    nl.fori_loop(0, 4, lambda number: nisa.tensor_copy(column, data.select(1, number)))


def dma_at_an_offset():
    data, column = far((128, 4, 8)), tile((128, 8))
    nl.fori_loop(0, 4, lambda number: nisa.dma_copy(column, data.select(1, number)))


def register_to_sbuf():
    nisa.register_store(tile((1, 1), nl.int32), nisa.register_alloc(3))


def register_to_hbm():
    nisa.register_store(far((1, 1), nl.int32), nisa.register_alloc(3))


def skip_in_a_loop():
    x, row = far((8, 16)), tile((1, 16))

    def body(number):
        source = x.ap([[16, 1], [1, 16]], scalar_offset=number)
        nisa.dma_copy(row, source, oob_mode=oob_mode.skip)

    nl.fori_loop(0, 8, body)


def bounded_in_a_loop():
    x, row = far((8, 16)), tile((1, 16))

    def body(number):
        nisa.dma_copy(row, x.ap([[16, 1], [1, 16]], scalar_offset=number))

    nl.fori_loop(0, 8, body)


def gathered_rows(skip):
    """Sixteen rows of a table by number."""
    rows = far((32, 8), nl.bfloat16).vector_select(0, tile((16, 1), nl.uint32))
    mode = oob_mode.skip if skip else oob_mode.error
    nisa.dma_transpose(tile((8, 16), nl.bfloat16), rows, oob_mode=mode)


def transpose_and_skip():
    gathered_rows(skip=True)


def transpose_all():
    gathered_rows(skip=False)


def on(machine, breaks, keeps):
    """A pair on one program of a machine."""
    return Pair(Launch(breaks, machine), Launch(keeps, machine))


PAIRS = {
    "psum-across-loop": on("trn2", bank_of_the_kernel, bank_of_the_body),
    "psum-in-two-loops": on("trn2", one_bank_two_loops, a_bank_each_loop),
    "sbuf-refill-across-iterations": on("trn2", refill_at_the_end, load_at_the_top),
    "loop-trips": on("trn2", too_many_trips, as_many_trips_as_run),
    "zero-trips-on-two-cores": Pair(
        Launch(no_trips, programs=2, lnc=2), Launch(a_loop, programs=2, lnc=2)
    ),
    "nested-loops": on("trn2", loop_in_loop, range_in_loop),
    "programs-differ": Pair(
        Launch(trips_of_the_program, programs=2, lnc=2),
        Launch(offsets_of_the_program, programs=2, lnc=2),
    ),
    "loop-on-one-program": Pair(Launch(a_loop, lnc=2), Launch(no_loop, lnc=2)),
    "grid-above-lnc": Pair(Launch(no_loop, programs=2, lnc=1), Launch(no_loop, programs=2, lnc=2)),
    "grid-below-lnc": Pair(Launch(no_loop, lnc=2), Launch(no_loop, lnc=1)),
    "psum-groups": on("trn1", two_groups_in_a_bank, a_bank_each_group),
    "psum-groups-untested": on("trn2", two_groups_in_a_bank, a_bank_each_group),
    "accumulate-none-reuse": on("trn2", none_on_a_used_bank, none_on_a_fresh_bank),
    "stationary-two-free-dims": on("trn2", stationary_in_two_dims, stationary_in_one_dim),
    "bf16-transpose-psum": on("trn1", transpose_into_bf16, transpose_into_fp32),
    "offset-in-dimension": on("trn2", offset_beyond_the_dimension, offset_in_a_flat_view),
    "dma-negative-partition-step": on("trn2", rows_backwards_by_dma, columns_backwards_by_copy),
    "dma-negative-free-step": on("trn2", columns_backwards_by_dma, columns_backwards_by_copy),
    "dma-split-partitions": on("trn2", partitions_in_two_dims, a_dma_each_half),
    "step-above-16-bit": on("trn2", long_step_by_dma, short_step_by_dma),
    "activation-copy-bias": on("trn1", copy_with_bias, add_on_vector),
    "gpsimd-elementwise": on("trn1", add_on_gpsimd, sum_on_vector),
    "shared-hbm-scratch": on("trn1", scratch_for_both, scratch_of_its_own),
    "dynamic-compute-operand": on("trn1", copy_at_an_offset, dma_at_an_offset),
    "register-store-to-sbuf": on("trn1", register_to_sbuf, register_to_hbm),
    "skip-in-loop": on("trn2", skip_in_a_loop, bounded_in_a_loop),
    "transpose-gather-skip": on("trn2", transpose_and_skip, transpose_all),
}
