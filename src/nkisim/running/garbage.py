"""Python's garbage collector while a kernel runs.

A trace is millions of objects that all stay. Looking through them for garbage again and again takes
a sixth of a shape-only run and finds nothing, so it is done less often for that time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_RARELY = (100_000, 50, 100)  # new objects, and collections of the next younger generation


@contextmanager
def collected_rarely() -> Iterator[None]:
    """Collect rarely within the with-block; a collector that is off stays off."""
    before = gc.get_threshold()
    gc.set_threshold(*_RARELY)
    try:
        yield
    finally:
        gc.set_threshold(*before)
