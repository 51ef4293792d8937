"""Kernels on two cores, for tests: launched with a time limit, and small tiles for them."""

import threading

import numpy as np

import nkisim.isa as nisa
import nkisim.language as nl
from nkisim.running.host_arrays import Spec
from nkisim.running.kernel import Kernel, run

SECONDS = 20  # a run takes milliseconds; a deadlock would take for ever


def within_time(call):
    """The result of `call`, or a failure if it does not come."""
    outcome = []

    def target():
        try:
            outcome.append((call(), None))
        except BaseException as error:  # noqa: BLE001 (raised again below)
            outcome.append((None, error))

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive(), "deadlock"
    result, error = outcome[0]
    if error is not None:
        raise error
    return result


def launch(kernel, *, values=True, machine="trn2"):
    """Run on two cores with a (16, 6) array of 0, 1, 2, ..."""
    x = np.arange(96, dtype=np.float32).reshape(16, 6)
    argument = x if values else Spec(x.shape, "float32")
    return within_time(lambda: run(Kernel(kernel)[2], argument, machine=machine, values=values))


def other():
    """The number of the other core."""
    return 1 - nl.program_id(0)


def filled(shape):
    """A tile that holds a number of the core's own."""
    tile = nl.ndarray(shape, "float32")
    nisa.memset(tile, 1.0 + nl.program_id(0))
    return tile


def shared(shape=(16, 6), name=None):
    """An fp32 tensor that both cores see."""
    return nl.ndarray(shape, "float32", nl.shared_hbm, name=name)
