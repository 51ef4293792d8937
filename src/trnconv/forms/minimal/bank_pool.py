"""Banks of PSUM that are taken and given back: chains and norms hold theirs for different times."""

from __future__ import annotations

from trnconv._nki import nl


class BankPool(nl.NKIObject):
    """PSUM tensors of a bank each; the one that was given back longest ago is taken next.

    Tensors are of the region that allocated them, the body of a loop or what lies between loops: no
    compiler takes one that comes from outside of a loop, or one that two loops mention.
    """

    def __init__(self, count: int, shape: tuple[int, int], dtype: str) -> None:
        self.count = count
        self.shape = shape
        self.dtype = dtype
        self.queue: list[nl.NkiTensor] = []  # all that were ever given back, in order
        self.taken = 0

    def open_region(self) -> None:
        """A loop begins or ends: what comes now has tensors of its own."""
        self.queue = []
        self.taken = 0

    def take(self) -> nl.NkiTensor:
        """One that nobody holds."""
        if len(self.queue) == 0:
            for _ in range(self.count):
                self.queue.append(nl.ndarray(self.shape, dtype=self.dtype, buffer=nl.psum))
        assert self.taken < len(self.queue), "every bank of PSUM is held"
        self.taken += 1
        return self.queue[self.taken - 1]

    def give(self, bank: nl.NkiTensor) -> None:
        """Back: everything that reads it was issued."""
        self.queue.append(bank)
