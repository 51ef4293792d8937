"""The graphs of a run: a model that works chunk by chunk is compiled once a kind of chunk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


class Called(Protocol):
    """A convolution of a module."""

    @property
    def module(self) -> str:
        """Its dotted name."""


W = TypeVar("W", bound=Called)


@dataclass(frozen=True)
class Graph(Generic[W]):
    """Convolutions that are compiled together, and how often the graph is launched."""

    name: str
    launches: int
    works: tuple[tuple[W, int], ...]  # with how often each is called in a launch


def graphs_of(works: Sequence[tuple[W, int]]) -> tuple[Graph[W], ...]:
    """What is called together, from how often each convolution was called in a whole run.

    A causal VAE calls its modules once a chunk of frames, or once a tile. Chunks that call the same
    are one graph: of Wan a first, a second and a steady one. Modules with fewer calls are left out
    of the first chunks (time is not upsampled there), and modules with a single call are a graph of
    their own, around the chunks. Works stand in the order in which they were first called.
    """
    sequences = _sequences(works)
    numbers = Counter(len(calls) for calls in sequences)
    chunks = max(numbers, key=lambda count: (numbers[count], count), default=1)
    if chunks == 1 or max(numbers) > chunks:
        return (Graph("all", 1, tuple(works)),)
    every = [_chunk(sequences, number, chunks) for number in range(chunks)]
    launches = Counter(every)
    graphs = [
        Graph(_name(every.index(chunk), count, chunks), count, tuple((work, 1) for work in chunk))
        for chunk, count in launches.items()
    ]
    outside_chunks = tuple((calls[0], 1) for calls in sequences if len(calls) == 1)
    return (
        (*graphs, Graph("around the chunks", 1, outside_chunks))
        if outside_chunks
        else tuple(graphs)
    )


def _sequences(works: Sequence[tuple[W, int]]) -> list[list[W]]:
    """What every module was called with, call after call."""
    by_module: dict[str, list[W]] = {}
    for work, calls in works:
        by_module.setdefault(work.module, []).extend([work] * calls)
    return list(by_module.values())


def _chunk(sequences: list[list[W]], number: int, chunks: int) -> tuple[W, ...]:
    """What is called in one chunk."""
    called = ((calls, number - chunks + len(calls)) for calls in sequences if len(calls) > 1)
    return tuple(calls[at] for calls, at in called if at >= 0)


def _name(first: int, count: int, chunks: int) -> str:
    if count == 1:
        return f"chunk {first + 1} of {chunks}"
    return f"{count} of {chunks} chunks, from {first + 1} on"
