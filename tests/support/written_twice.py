"""Which memories a traced kernel writes more than once, and how; for tests.

Of writes to elements that were written before: *added* by a matmul to a sum in PSUM; *in place* by
an instruction that reads what it overwrites; *again* if what stood there is replaced.
"""

from __future__ import annotations

import numpy as np

ADDED, IN_PLACE, AGAIN = "added", "in place", "again"


def written_twice(trace):
    """The pairs (memory, how) of all writes that are not the first of their elements."""
    written, found = {}, set()
    for instruction in trace.instructions():
        for access in instruction.writes:
            allocation = access.allocation
            size = max(1, allocation.partitions) * allocation.bytes_per_partition
            known = written.setdefault(allocation.index, np.zeros(size, bool))
            touched = elements(access)
            if known[touched].any():
                found.add((allocation.region.name, how(instruction, access)))
            known[touched] = True
    return found


def elements(access):
    """The first bytes of the elements that an access touches, in its allocation."""
    layout = access.layout
    places = np.array([access.offset])
    for count, stride in zip(layout.shape, layout.strides, strict=True):
        places = np.add.outer(places, np.arange(count) * stride).ravel()
    return places * layout.itemsize_bytes


def how(instruction, access):
    """One of the three words."""
    if instruction.op == "nc_matmul" and access.allocation.region.name == "psum":
        return ADDED if instruction.option("accumulate") is not False else AGAIN
    own = [read for read in instruction.reads if read.allocation is access.allocation]
    met = any(np.isin(elements(read), elements(access)).any() for read in own)
    return IN_PLACE if met else AGAIN
