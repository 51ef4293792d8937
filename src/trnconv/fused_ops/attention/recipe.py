"""What the attention kernel does, in NKI's own value types."""

from __future__ import annotations

from dataclasses import dataclass

from trnconv._nki import NKIObject
from trnconv.algorithms.digest import digest_of


@dataclass(frozen=True)
class QueryRow(NKIObject):
    """Queries that see the same keys: `count` of them, `iterations` times, one after the other."""

    image: int
    first: int  # token
    count: int
    iterations: int  # of a hardware loop; 1: none
    keys: int  # the first so many tokens of the image


@dataclass(frozen=True)
class AttentionRecipe(NKIObject):
    """Everything the kernel does on one core."""

    shape: tuple[int, int, int]  # of q, k, v and o: images, tokens, elements of a head
    depth: tuple[int, int]  # tiles of a head, and elements of each
    lines: int  # queries of a tile, keys of a product
    bank: int  # keys whose scores stand in one PSUM bank
    block: int  # keys that are loaded at once
    tiles: int  # of queries, at most, that share what is loaded
    scale: float
    rows: tuple[QueryRow, ...]

    def __repr__(self) -> str:
        """What compiled kernels are kept by: a digest of all of it, and of the kernel's sources."""
        return f"{type(self).__name__}({digest_of(self)})"

    def __hash__(self) -> int:
        """By the same, which equal recipes have in common."""
        return hash(repr(self))
