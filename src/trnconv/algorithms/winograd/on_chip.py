"""Places in SBUF and PSUM as a pipeline sees them: by when they can be read and written."""

from __future__ import annotations

from collections import deque


class OnChip:
    """A place on chip: when what it holds can be read, and when it may be overwritten.

    The Vector engine need not be told of what it wrote itself.
    """

    __slots__ = ("free", "ready", "vector_ready")

    def __init__(self) -> None:
        self.ready = 0.0
        self.vector_ready = 0.0
        self.free = 0.0

    def written(self, ready: float) -> None:
        """By another engine than Vector."""
        self.ready = self.vector_ready = ready


class Part(OnChip):
    """A part of a place, as that is now: it is read and written apart."""

    __slots__ = ("whole",)

    def __init__(self, whole: OnChip) -> None:
        super().__init__()
        self.whole = whole
        self.ready, self.vector_ready = whole.ready, whole.vector_ready


class Rotation:
    """Places that are used in turn."""

    def __init__(self, count: int) -> None:
        self.tiles = [OnChip() for _ in range(max(1, count))]
        self.used = 0

    def take(self) -> OnChip:
        """The one whose turn it is."""
        self.used += 1
        return self.tiles[(self.used - 1) % len(self.tiles)]


class Pool:
    """Places that are taken and given back, as `BankPool` has them."""

    def __init__(self, count: int) -> None:
        self._free = deque(OnChip() for _ in range(count))

    def take(self) -> OnChip:
        """The one that was given back longest ago."""
        return self._free.popleft()

    def give(self, *tiles: OnChip) -> None:
        """Back, in this order."""
        self._free.extend(tiles)
