"""Chains: the products of one rectangle of tiles, and their way out of PSUM, A^T included.

With p_k the sum of product k over taps and channels, b the bias and s a power of two that undoes
the scaling of the weights:

F(2,3)   y0 = s (p1 + p0) + (s p2 + b)        y1 = (s p1 + b) - s (p2 + p3)

Two banks. p1 and p2 are copied by the Scalar engine with scale and bias, then their banks go on
with p0 and p3, so that one addition on the Vector engine ends each output.

F(4,3)   with q = s (p1 - p2) + b, t = 2 s (p3 - p4), r = 2 (p3 + p4):
         y0 = s (p1 + p2 + p0) + (s r / 2 + b)     y1 = t + q
         y2 = s (p1 + p2) + (2 s r + b)            y3 = 4 t + (s p5 + q)

Three banks; t replaces the second one's contents. All of it is float32 until y is written.
"""

from __future__ import annotations

from trnconv.algorithms.winograd.chain import FOUR, HALF, MINUS, ONE, PLAIN, TWICE
from trnconv.algorithms.winograd.executors import ChainExecutor
from trnconv.algorithms.winograd.prefetch import Prefetch
from trnconv.algorithms.winograd.store_tile import StoreTile


def begin_chain(chain: ChainExecutor, store_tile: StoreTile, prefetch: Prefetch) -> None:
    """The first part of a chain: all of F(2,3), four products of F(4,3)."""
    if chain.outputs > 2:
        middle_outputs(chain, store_tile, prefetch)
    elif chain.midgroup:
        two_outputs(chain, store_tile, prefetch)
    else:
        two_outputs_of_whole_sums(chain, store_tile, prefetch)


def end_chain(chain: ChainExecutor, store_tile: StoreTile, prefetch: Prefetch) -> None:
    """The rest of a chain. It comes after the beginning of the next one, which hides its waits."""
    if chain.outputs > 2:
        outer_outputs(chain, store_tile, prefetch)


def two_outputs(chain: ChainExecutor, store_tile: StoreTile, prefetch: Prefetch) -> None:
    """F(2,3) in two banks that are read while they grow."""
    left, right = chain.bank(), chain.bank()
    p1, p2 = chain.tile_copy(), chain.tile_copy()
    chain.multiply(left, 1, begins=True)
    if 1 in chain.wanted:
        chain.copy(p1, left, ONE, bias=True)
    chain.multiply(right, 2, begins=True)
    if 1 in chain.wanted:
        store_tile.add_residual(1, p1, p1)
    if 0 in chain.wanted:
        chain.copy(p2, right, ONE, bias=True)
        store_tile.add_residual(0, p2, p2)
        chain.multiply(left, 0, begins=False)
        store_tile.end(0, left, ONE, p2, p2)
    prefetch.pause()
    if 1 in chain.wanted:
        chain.multiply(right, 3, begins=False)
        store_tile.end(1, right, MINUS, p1, p1)
    chain.give_back()
    prefetch.pause()


def two_outputs_of_whole_sums(
    chain: ChainExecutor, store_tile: StoreTile, prefetch: Prefetch
) -> None:
    """F(2,3) in four banks, each read when it is complete."""
    first, second, third, fourth = chain.bank(), chain.bank(), chain.bank(), chain.bank()
    p1, both, between = chain.tile_copy(), chain.tile_copy(), chain.tile_copy()
    chain.multiply(first, 1, begins=True)
    chain.copy(p1, first, ONE, bias=True)
    chain.multiply(second, 2, begins=True)
    if 0 in chain.wanted:
        chain.add(both, second, ONE, p1)
        store_tile.add_residual(0, both, both)
        chain.multiply(third, 0, begins=True)
        store_tile.end(0, third, ONE, both, both)
    prefetch.pause()
    if 1 in chain.wanted:
        chain.add(between, second, MINUS, p1)
        store_tile.add_residual(1, between, between)
        chain.multiply(fourth, 3, begins=True)
        store_tile.end(1, fourth, MINUS, between, between)
    chain.give_back()
    prefetch.pause()


def middle_outputs(chain: ChainExecutor, store_tile: StoreTile, prefetch: Prefetch) -> None:
    """F(4,3) up to y1 and y2: two banks that are read while they grow."""
    a, b = chain.bank(), chain.bank()
    q, p3, twice = chain.tile_copy(), chain.tile_copy(), chain.tile_copy()
    half = chain.tile_copy()
    chain.multiply(b, 3, begins=True)
    chain.copy(p3, b, TWICE, bias=False)
    chain.multiply(a, 1, begins=True)
    chain.copy(q, a, TWICE, bias=True)
    chain.multiply(b, 4, begins=False)
    chain.copy(twice, b, TWICE, bias=True)
    chain.copy(half, b, HALF, bias=True)
    if 2 in chain.wanted:
        store_tile.add_residual(2, twice, twice)
    if 0 in chain.wanted:
        store_tile.add_residual(0, half, half)
    prefetch.pause()
    chain.add(b, b, MINUS, p3)
    chain.multiply(a, 2, begins=False)
    chain.add(q, a, MINUS, q)
    if 2 in chain.wanted:
        store_tile.end(2, a, ONE, twice, twice)
    other = q
    if 1 in chain.wanted:
        other = store_tile.add_residual(1, p3, q)
    if 3 in chain.wanted:
        store_tile.add_residual(3, q, q)
    prefetch.pause()
    if 1 in chain.wanted:
        store_tile.end(1, b, PLAIN, other, p3)
    chain.kept = [a, b, q, half]


def outer_outputs(chain: ChainExecutor, store_tile: StoreTile, prefetch: Prefetch) -> None:
    """y3 and y0 of F(4,3): a bank of its own, and one that goes on."""
    a, b, q, half = chain.kept
    c, g = chain.bank(), chain.tile_copy()
    if 3 in chain.wanted:
        chain.multiply(c, 5, begins=True)
        chain.add(g, c, ONE, q)
        store_tile.end(3, b, FOUR, g, g)
    prefetch.pause()
    if 0 in chain.wanted:
        chain.multiply(a, 0, begins=False)
        store_tile.end(0, a, ONE, half, half)
    chain.give_back()
    prefetch.pause()
