"""Calling functions of nki.language on arrays: load, call, store."""

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.running.kernel import run


def run_on_tiles(function, *arrays, machine="trn2", **how):
    """A run of a kernel that loads the arrays, calls `function` on the tiles, stores the result."""

    def kernel(*sources):
        result = function(*(nl.load(source) for source in sources))
        if nl.is_psum(result.buffer):
            evicted = nl.ndarray(result.shape, dtype=result.dtype)
            nisa.tensor_copy(evicted, result)
            result = evicted
        out = nl.ndarray(result.shape, dtype=result.dtype, buffer=nl.shared_hbm)
        nl.store(out, result)
        return out

    return run(kernel, *arrays, machine=machine, **how)


def on_tiles(function, *arrays, machine="trn2"):
    """What `function` returns for tiles that hold the arrays."""
    return run_on_tiles(function, *arrays, machine=machine).outputs


def instructions(function, *arrays, machine="trn2"):
    """(engine, operation) of what `function` issues between the loads and the store."""
    trace = run_on_tiles(function, *arrays, machine=machine).trace
    issued = [(each.engine.name, each.op) for each in trace.instructions()]
    return issued[len(arrays) : -1]
