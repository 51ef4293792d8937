"""register_alloc, register_move, register_load and register_store."""

import numpy as np
import pytest

import nkisim.isa as nisa
import nkisim.language as nl
from isa_tiles import refused
from kernel_steps import assert_traces_agree, give, load, result_of, specs
from nkisim.enums import engine
from nkisim.errors import UnsupportedError
from nkisim.running.kernel import run

NUMBER = np.array([[41]], np.int32)


def stored(register, dtype=nl.int32):
    """A kernel result that holds the value of a register."""
    tile = nl.ndarray((1, 1), dtype, nl.sbuf)
    nisa.register_store(tile, register)
    return give(tile)


def test_a_register_holds_an_immediate():
    def kernel(_x):
        return stored(nisa.register_alloc(-7))

    assert result_of(kernel, NUMBER).tolist() == [[-7]]


def test_a_value_is_loaded_from_sbuf_and_from_hbm():
    def kernel(x):
        one, two = nisa.register_alloc(), nisa.register_alloc(5)
        nisa.register_load(one, load(x))
        nisa.register_load(two, x.reshape((1,)))
        return stored(one), stored(two)

    assert [result.tolist() for result in result_of(kernel, NUMBER)] == [[[41]], [[41]]]
    assert_traces_agree(kernel, NUMBER)


def test_a_value_is_moved_from_a_number_or_a_register():
    def kernel(x):
        one, two = nisa.register_alloc(1), nisa.register_alloc()
        nisa.register_load(one, x)
        nisa.register_move(two, one)
        nisa.register_move(one, 3)
        return stored(one), stored(two)

    assert [result.tolist() for result in result_of(kernel, NUMBER)] == [[[3]], [[41]]]
    assert_traces_agree(kernel, NUMBER)


@pytest.mark.parametrize(
    ("dtype", "value", "kept"),
    [
        ("int32", np.int64(7), 7),
        ("uint8", 300, 44),
        ("int16", -2, -2),
        ("uint32", 2**32 - 1, 2**32 - 1),
        ("int8", 200, -56),
    ],
)
def test_narrow_elements_take_the_low_bits(dtype, value, kept):
    def kernel(_x):
        return stored(nisa.register_alloc(value), dtype)

    assert result_of(kernel, NUMBER).tolist() == [[kept]]


def test_a_register_is_stored_to_hbm_and_to_any_partition():
    def kernel(_x):
        register = nisa.register_alloc(12)
        out = nl.ndarray((2, 3), nl.int32, nl.shared_hbm)
        tile = nl.ndarray((8, 3), nl.int32, nl.sbuf)
        nisa.memset(tile, 0)
        nisa.register_store(tile[5, 1:2], register)
        nisa.dma_copy(out, tile[4:6])
        nisa.register_store(out[0, 2:3], register)
        return out

    assert result_of(kernel, NUMBER).tolist() == [[0, 0, 12], [0, 12, 0]]


def test_registers_are_the_work_of_a_sequencer():
    def kernel(x):
        register = nisa.register_alloc(1)
        nisa.register_move(register, 2)
        nisa.register_load(register, load(x))
        return stored(register)

    trace = run(kernel, NUMBER, machine="trn2").trace
    found = {i.op: i for i in trace.instructions() if i.op.startswith("register")}
    assert set(found) == {"register_move", "register_load", "register_store"}
    assert {instruction.engine for instruction in found.values()} == {engine.sync}
    assert (found["register_move"].reads, found["register_move"].writes) == ((), ())


def test_a_shape_only_run_knows_immediates_and_not_memory():
    def kernel(x):
        known, loaded = nisa.register_alloc(4), nisa.register_alloc(4)
        nisa.register_load(loaded, x)
        assert known.state == 4
        assert loaded.state is None

    run(kernel, *specs(NUMBER), machine="trn2", values=False)


def test_an_unset_register_has_no_value():
    def storing(_x):
        stored(nisa.register_alloc())

    def moving(_x):
        nisa.register_move(nisa.register_alloc(), nisa.register_alloc())

    for kernel in (storing, moving):
        with pytest.raises(UnsupportedError, match="an unset register has no value"):
            run(kernel, NUMBER, machine="trn2")


@pytest.mark.parametrize(
    ("issue", "instruction", "limit"),
    [
        (lambda _x: nisa.register_alloc(2**32), "register_alloc", "a 32-bit integer"),
        (lambda _x: nisa.register_alloc(1.5), "register_alloc", "a 32-bit integer"),
        (lambda _x: nisa.register_alloc(True), "register_alloc", "a 32-bit integer"),
        (
            lambda _x: nisa.register_move(nisa.register_alloc(), "1"),
            "register_move",
            "a 32-bit integer",
        ),
        (lambda _x: nisa.register_move(3, 4), "register_move", "a register"),
        (lambda x: nisa.register_load(3, x), "register_load", "a register"),
        (lambda x: nisa.register_store(x, 3), "register_store", "a register"),
        (
            lambda _x: nisa.register_load(
                nisa.register_alloc(), nl.ndarray((1, 2), nl.int32, nl.sbuf)
            ),
            "register_load",
            "1 element",
        ),
        (
            lambda _x: nisa.register_load(
                nisa.register_alloc(), nl.ndarray((1, 1), nl.float32, nl.sbuf)
            ),
            "register_load",
            "int16, int32, int8",
        ),
        (
            lambda _x: nisa.register_store(
                nl.ndarray((1, 1), nl.int32, nl.psum), nisa.register_alloc(1)
            ),
            "register_store",
            "private_hbm, sbuf, shared_hbm",
        ),
    ],
)
def test_registers_are_refused_for(issue, instruction, limit):
    with refused(instruction, limit):
        run(issue, NUMBER, machine="trn2")


def test_a_register_is_no_python_integer():
    def kernel(_x):
        return [0, 1][nisa.register_alloc(1)]

    with pytest.raises(nisa.NkiValidationError, match="used as a Python integer"):
        run(kernel, NUMBER, machine="trn2")
