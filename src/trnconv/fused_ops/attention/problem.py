"""The problem of attention, its decisions, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from nkisim.machine import Machine
from trnconv.algorithms.algorithm import Array
from trnconv.fused_ops.attention.kernel import attention, attention_on_two_cores
from trnconv.fused_ops.attention.price import launch_price, more_images
from trnconv.fused_ops.attention.recipe import AttentionRecipe, QueryRow
from trnconv.fused_ops.launch import FusedOpLaunch, launch_on
from trnconv.fused_ops.price import LaunchPrice
from trnconv.fused_ops.problem import FusedOp
from trnconv.fused_ops.refusal import (
    choice_reasons,
    machine_reasons,
    shape_reasons,
    takes_loops,
)

# Of queries that share a block of keys: its loads then hide behind the Tensor engine.
_TILES = (5, 6, 7, 8)
_WORSE = 1.01  # times that are taken for equal: the shorter program is
_BLOCK_IN_BANKS = 2
_MOST_HEAD_TILES = 8
_DTYPES = ("bfloat16", "float16")


@dataclass(frozen=True)
class Attention(FusedOp):
    """softmax(scale * q k^T) v of one head, for q, k and v [batch, tokens, head_dim].

    With `frame_tokens`, a token sees the tokens of its frame and of those before it, and no others.
    """

    batch: int
    tokens: int
    head_dim: int
    frame_tokens: int | None = None
    dtype: str = "bfloat16"
    scale: float | None = None  # None: 1 / sqrt(head_dim)

    def _reasons(self, machine: Machine, cores: int) -> Iterator[str]:
        yield from choice_reasons("dtype", self.dtype, _DTYPES)
        yield from shape_reasons((self.batch, self.tokens, self.head_dim), self.dtype)
        yield from machine_reasons(machine, cores)
        frame = self.frame_tokens
        if frame is not None and (frame < 1 or self.tokens % frame):
            yield f"frames of {frame} tokens: they divide {self.tokens} tokens"
        if self.head_dim > machine.psum_bank_fp32_elems:
            most = machine.psum_bank_fp32_elems
            yield f"a head of {self.head_dim} elements: at most {most}, a bank of PSUM; split it"
        if _head_tiles(self.head_dim, machine) > _MOST_HEAD_TILES:
            yield (
                f"a head of {self.head_dim} elements: it has no {_MOST_HEAD_TILES} equal tiles or"
                f" fewer, of at most {machine.partitions}; pad it with zeros"
            )
        if not machine.accepts.dma_transposes:
            yield f"transposes by DMA: {machine.name} has them switched off"

    def modelled(self, machine: Machine, cores: int) -> LaunchPrice:
        """Of two images and, if there are more, as much again for each as the second one adds."""
        few = _of_images(self, 2)
        tiles = _best_tiles(few, machine, cores)
        both = _price_with(few, machine, cores, tiles)
        if self.batch == few.batch:
            return both
        first = _price_with(_of_images(self, 1), machine, cores, tiles)
        return both + more_images(first, both, self.batch - few.batch)


def _head_tiles(elems: int, machine: Machine) -> int:
    """The fewest equal tiles of a head."""
    count = -(-elems // machine.partitions)
    while elems % count:
        count += 1
    return count


@lru_cache(maxsize=1024)
def recipes_of(problem: Attention, machine: Machine, cores: int) -> tuple[AttentionRecipe, ...]:
    """What each core does: the fastest, or nearly that if its program is shorter."""
    return _recipes(problem, machine, cores, _best_tiles(_of_images(problem, 2), machine, cores))


def _of_images(problem: Attention, most: int) -> Attention:
    """The same of at most so many images: those in between are equal."""
    return replace(problem, batch=min(problem.batch, most))


@lru_cache(maxsize=1024)
def _best_tiles(problem: Attention, machine: Machine, cores: int) -> int:
    """Of queries that share what is loaded."""
    prices = {tiles: _price_with(problem, machine, cores, tiles) for tiles in _TILES}
    most = _WORSE * min(price.ns for price in prices.values())
    fast = [tiles for tiles, price in prices.items() if price.ns <= most]
    return min(fast, key=lambda tiles: prices[tiles].instructions)


def _price_with(problem: Attention, machine: Machine, cores: int, tiles: int) -> LaunchPrice:
    return launch_price(_recipes(problem, machine, cores, tiles), machine)


def _recipes(
    problem: Attention, machine: Machine, cores: int, tiles: int
) -> tuple[AttentionRecipe, ...]:
    bank = machine.psum_bank_fp32_elems
    deep = _head_tiles(problem.head_dim, machine)
    scale = problem.head_dim**-0.5 if problem.scale is None else problem.scale
    region = tiles * machine.partitions
    return tuple(
        AttentionRecipe(
            shape=(problem.batch, problem.tokens, problem.head_dim),
            depth=(deep, problem.head_dim // deep),
            lines=machine.partitions,
            bank=bank,
            block=_BLOCK_IN_BANKS * bank,
            tiles=tiles,
            scale=scale,
            rows=tuple(_rows(problem, machine, (core, cores), region)),
        )
        for core in range(cores)
    )


def _rows(
    problem: Attention, machine: Machine, program: tuple[int, int], region: int
) -> Iterator[QueryRow]:
    """Queries of a core, frame by frame: a loop over regions, and what is left behind it."""
    core, cores = program
    frame, lines = problem.frame_tokens or problem.tokens, machine.partitions
    tiles = -(-frame // lines)
    bounds = [min(frame, lines * -(-tiles * n // cores)) for n in range(cores + 1)]
    shares = [bounds[n + 1] - bounds[n] for n in range(cores)]
    iterations = min(shares) // region
    iterations = iterations if iterations > 1 and takes_loops(machine) else 0
    for image in range(problem.batch):
        for start in range(0, problem.tokens, frame):
            first, end = start + bounds[core], start + bounds[core + 1]
            if iterations:
                yield QueryRow(image, first, region, iterations, start + frame)
            for at in range(first + iterations * region, end, region):
                yield QueryRow(image, at, min(region, end - at), 1, start + frame)


def launch_of(problem: Attention, machine: Machine, cores: int) -> FusedOpLaunch:
    """The kernel; it takes q, k and v."""
    problem.require(machine, cores)
    kernels = (attention, attention_on_two_cores)
    return launch_on(machine, kernels, (), recipes_of(problem, machine, cores))


def simulate(
    problem: Attention, q: Array, k: Array, v: Array, machine: Machine, cores: int = 1
) -> Array:
    """o of the kernel in nkisim."""
    return np.asarray(launch_of(problem, machine, cores).run(q, k, v).outputs)
