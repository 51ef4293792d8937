"""How slow this computer is at the moment, so that limits of tests are of the code, not of it."""

import time
from functools import cache
from statistics import median

import numpy as np

QUIET_S = 0.06  # the work below on a quiet core of the machine that limits were set on
_ITERATIONS = 3


def _work():
    """What tests mostly do: small objects of Python, and small arrays."""
    table = {(number, str(number)): [number] * 4 for number in range(40_000)}
    total = sum(len(text) + values[0] for (_, text), values in table.items())
    image = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    for _ in range(800):
        image = np.tanh(image @ image.T / 4096)
    return total + float(image[0, 0])


@cache
def slowness():
    """How many times longer than on that machine; at least 1. Measured once a process."""
    taken = []
    for _ in range(_ITERATIONS):
        begin = time.perf_counter()
        _work()
        taken.append(time.perf_counter() - begin)
    return max(1.0, median(taken) / QUIET_S)


def limit_s(seconds):
    """A limit that was set on a quiet machine, as it is on this one now."""
    return seconds * slowness()
