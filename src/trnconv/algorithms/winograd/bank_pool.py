"""Banks of PSUM that are taken and given back: chains and norms hold theirs for different times."""

from __future__ import annotations

from trnconv._nki import nl
from trnconv.algorithms.kernel_parts import Banks


class BankPool(nl.NKIObject):
    """Banks of a region; after each was taken once, the one given back longest ago is next."""

    def __init__(self, count: int, shape: tuple[int, int], dtype: str) -> None:
        self.banks = Banks(count, shape, dtype)
        self.given: list[nl.NkiTensor] = []  # back, in order, those that were taken again too
        self.retaken = 0
        self.kept: list[nl.NkiTensor] = []

    def open_region(self) -> None:
        """A loop begins or ends: what comes now has tensors of its own."""
        self.banks.open_region()
        self.given = []
        self.retaken = 0
        self.kept = []

    def take(self) -> nl.NkiTensor:
        """One that nobody holds."""
        if self.banks.used < self.banks.count:
            return self.banks.take()
        assert self.retaken < len(self.given), "every bank of PSUM is held"
        self.retaken += 1
        return self.given[self.retaken - 1]

    def between(self) -> nl.NkiTensor:
        """One that is never given back, for sums on their way."""
        if len(self.kept) == 0:
            self.kept = [self.take()]
        return self.kept[0]

    def give(self, bank: nl.NkiTensor) -> None:
        """Back: everything that reads it was issued."""
        self.given.append(bank)
