"""Stores that are overwritten or left and never read, and what only looks like one."""

import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.running.kernel import Kernel, run

X = np.arange(64, dtype=np.float32).reshape(8, 8)


def unread(kernel, *args):
    found = run(kernel, *args, machine="trn2", lnc=1, inspect=True).inspection.unread
    return [str(store) for store in found]


def loaded(x):
    tile = nl.ndarray(x.shape, "float32")
    nisa.dma_copy(tile, x)
    return tile


def copied(tile):
    out = nl.ndarray(tile.shape, "float32", nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


def line(kernel, number):
    return f"test_store_monitor.py:{kernel.__code__.co_firstlineno + number}"


def test_a_kernel_that_reads_what_it_writes_has_none():
    def kernel(x):
        tile = loaded(x)
        nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
        return copied(tile)

    assert unread(kernel, X) == []


def test_a_tile_that_nothing_reads_is_named_with_its_line():
    def kernel(x):
        tile, other = loaded(x), nl.ndarray((8, 8), "float32", name="other")
        nisa.tensor_copy(other, tile)
        return copied(tile)

    first = f"tensor_copy (instruction 1, {line(kernel, 2)})"
    assert unread(kernel, X) == [f"{first} writes 'other', which nothing reads"]


def test_a_store_that_is_overwritten_names_both_lines():
    def kernel(x):
        tile = loaded(x)
        out = nl.ndarray((8, 8), "float32", nl.shared_hbm, name="out")
        nisa.dma_copy(out[0:4], tile[0:4])
        nisa.dma_copy(out[0:8], tile)
        return out

    first = f"dma_copy (instruction 1, {line(kernel, 3)})"
    second = f"dma_copy (instruction 2, {line(kernel, 4)})"
    expected = f"{first} writes 'out', which {second} overwrites before anything reads it"
    assert unread(kernel, X) == [expected]


def test_two_stores_may_overwrite_one_together():
    def kernel(x):
        tile = nl.ndarray((8, 8), "float32", name="tile")
        nisa.memset(tile, 1.0)
        nisa.dma_copy(tile[:, 0::2], x[:, 0::2])
        nisa.dma_copy(tile[:, 1::2], x[:, 1::2])
        return copied(tile)

    (found,) = unread(kernel, X)
    assert found.startswith("memset (instruction 0")
    assert "instruction 2" in found


def test_lines_are_counted_once():
    def kernel(x):
        tile = loaded(x)
        for _ in range(5):
            nisa.tensor_copy(nl.ndarray((8, 8), "float32", name=None), tile)
        return copied(tile)

    (found,) = unread(kernel, X)
    assert found.endswith("which nothing reads, 5 times")


def test_zeros_around_a_loaded_middle_are_read():
    def kernel(x):
        tile = nl.ndarray((8, 8), "float32")
        nisa.memset(tile, 0.0)
        nisa.dma_copy(tile[:, 2:6], x[:, 2:6])
        return copied(tile)

    assert unread(kernel, X) == []


def test_sums_of_matmuls_read_what_was_there():
    def kernel(x, flags):
        tile = loaded(x)
        sums = nl.ndarray((8, 8), "float32", nl.psum)
        for flag in flags:
            nisa.nc_matmul(sums, tile, tile, accumulate=flag)
        result = nl.ndarray((8, 8), "float32")
        nisa.tensor_copy(result, sums)
        return copied(result)

    assert unread(kernel, X, (False, True, True)) == []
    assert len(unread(kernel, X, (False, False, True))) == 1


def test_an_instruction_with_one_result_that_is_read_is_none():
    def kernel(x):
        tile, squares = loaded(x), nl.ndarray((8, 8), "float32")
        total = nl.ndarray((8, 1), "float32")
        reset = nisa.reduce_cmd.reset_reduce
        nisa.activation(
            squares, nl.square, tile, reduce_op=nl.add, reduce_res=total, reduce_cmd=reset
        )
        return copied(total)

    assert unread(kernel, X) == []


def test_a_loop_reads_in_the_next_iteration_what_it_wrote_in_this():
    def kernel(x):
        tile = nl.ndarray((1, 8), "float32")
        out = nl.ndarray((8, 8), "float32", nl.shared_hbm)
        nisa.dma_copy(tile, x[0:1])

        def body(i):
            nisa.dma_copy(out[nl.ds(i, 1)], tile)
            nisa.dma_copy(tile, x[nl.ds(i, 1)])

        nl.fori_loop(0, 8, body)
        return out

    (found,) = unread(kernel, X)  # what the last iteration loads
    assert found.endswith("writes 'tile', which nothing reads")


def test_a_gather_may_leave_rows_as_they_were():
    def kernel(x, rows):
        tile, index = nl.ndarray((8, 8), "float32"), nl.ndarray((8, 1), "int32")
        nisa.dma_copy(index, rows)
        nisa.memset(tile, 0.0)
        nisa.dma_copy(
            tile, x.ap([[8, 8], [1, 8]], 0, vector_offset=index), oob_mode=nisa.oob_mode.skip
        )
        return copied(tile)

    assert unread(kernel, X, np.arange(8, dtype=np.int32).reshape(8, 1)) == []


@pytest.mark.parametrize("cores", [1, 2])
def test_both_cores_may_write_one_result(cores):
    def kernel(x):
        return copied(loaded(x))

    found = run(Kernel(kernel)[cores], X, machine="trn2", inspect=True, races="report")
    assert found.inspection.unread == ()


def test_shape_only_runs_are_not_watched():
    def kernel(x):
        tile = loaded(x)
        nisa.tensor_copy(nl.ndarray((8, 8), "float32"), tile)
        return copied(tile)

    found = run(kernel, X, machine="trn2", values=False, inspect=True).inspection
    assert found.unread == ()
