"""Instructions that take no views made by `.indirect()` say so, on the machine that has them."""

import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from isa_tiles import refused
from nkisim.running.kernel import Kernel, run


def tile(*shape, dtype="float32", buffer=nl.sbuf):
    return nl.ndarray(shape, dtype, buffer)


def indirect(elems, dtype="float32", partitions=32):
    """A view of a few elements of every partition by an index."""
    index = nl.ndarray((partitions, 64), nl.uint16, nl.sbuf)
    return nl.ndarray((partitions, 64), dtype, nl.sbuf).indirect(index, elems)


def mx_matmul():
    words = tile(32, 8, dtype="float8_e5m2_x4")
    scales = tile(32, 8, dtype="uint8")
    psum = tile(8, 8, buffer=nl.psum)
    nisa.nc_matmul_mx(psum, words, indirect(8, "float8_e5m2_x4"), scales, scales)


USES = {
    "memset": lambda: nisa.memset(indirect(8), 0.0),
    "nc_transpose": lambda: nisa.nc_transpose(tile(8, 32), indirect(8)),
    "nc_stream_shuffle": lambda: nisa.nc_stream_shuffle(tile(32, 8), indirect(8), [0] * 32),
    "local_gather": lambda: nisa.local_gather(
        tile(32, 16), indirect(8), tile(32, 1, dtype="uint16")
    ),
    "nc_n_gather": lambda: nisa.nc_n_gather(tile(32, 4), indirect(8), tile(32, 4, dtype="uint32")),
    "max8": lambda: nisa.max8(tile(32, 8), indirect(20)),
    "nc_find_index8": lambda: nisa.nc_find_index8(
        tile(32, 8, dtype="uint32"), indirect(20), tile(32, 8)
    ),
    "nc_match_replace8": lambda: nisa.nc_match_replace8(
        tile(32, 20), indirect(20), tile(32, 8), 0.0
    ),
    "nonzero_with_count": lambda: nisa.nonzero_with_count(tile(32, 9, dtype="int32"), indirect(8)),
    "topk": lambda: nisa.topk(
        tile(32, 4, dtype="bfloat16"), tile(32, 4, dtype="uint32"), indirect(8, "bfloat16"), 64
    ),
    "sequence_bounds": lambda: nisa.sequence_bounds(tile(1, 2, 8), indirect(8, partitions=1)),
    "register_load": lambda: nisa.register_load(
        nisa.register_alloc(), indirect(1, "int32", partitions=1)
    ),
    "register_store": lambda: nisa.register_store(
        indirect(1, "int32", partitions=1), nisa.register_alloc(1)
    ),
    "quantize_mx": lambda: nisa.quantize_mx(
        tile(32, 2, dtype="float8_e5m2_x4"), indirect(8, "bfloat16"), tile(32, 2, dtype="uint8")
    ),
    "nc_matmul_mx": mx_matmul,
    "sendrecv": lambda: nisa.sendrecv(indirect(8), tile(32, 8), 1, 1, pipe_id=0),
}


@pytest.mark.parametrize("instruction", USES)
@pytest.mark.parametrize("values", [True, False])
def test_it_is_refused(instruction, values):
    def kernel():
        USES[instruction]()

    with refused(instruction, "does not support tensor indirection"):
        run(Kernel(kernel)[2], machine="trn3", values=values)
