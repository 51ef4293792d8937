"""Winograd's minimal filtering F(m, 3) as data: m outputs of a 3-tap filter from m + 2 products.

    y = A^T [ (G w) * (B^T d) ]       d: m + 2 inputs in a row, w: 3 taps, y: m outputs

Matrices are exact fractions. `steps` say how B^T d is computed, one two-input instruction each; the
order of products and the way out of PSUM are in `chains.py`. `nested` is one transform around
another, along two axes: what its errors are worked out from.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from trnconv._nki import NKIObject
from trnconv.errors import PlanError

TAPS = 3
Matrix = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True)
class TransformStep(NKIObject):
    """dst = scale * a + b.

    Operands are numbers: 0 .. n - 1 are inputs d, n .. 2n - 1 are transformed inputs v, from 2n on
    scratch tiles: one of a kernel's transform, more of a nested one.
    """

    dst: int
    a: int
    scale: float
    b: int


@dataclass(frozen=True, eq=False)  # there is one of each: what is worked out of it is kept
class Transform:
    """One F(m, 3). Products are numbered as rows of B^T and G."""

    name: str
    outputs: int  # m
    b_t: Matrix
    g: Matrix
    a_t: Matrix
    steps: tuple[TransformStep, ...]
    apart: tuple[int, ...]  # so many of the first steps may be another engine's: none is scaled
    held: tuple[int, ...]  # what a bank holds of each product: a power of two, folded into G
    banks: int  # PSUM banks of one chain of products
    copies: int  # float32 tiles in SBUF that a chain needs

    @property
    def products(self) -> int:
        """Products of one tile: m + 2 along an axis."""
        return len(self.b_t)

    @property
    def taps(self) -> int:
        """Taps of the filter: three along an axis."""
        return len(self.g[0])

    @property
    def input_gain(self) -> int:
        """The most that B^T d can exceed max |d|; what is computed on the way exceeds it less."""
        return max(int(sum(abs(value) for value in row)) for row in self.b_t)

    def products_for(self, wanted: tuple[int, ...]) -> tuple[int, ...]:
        """The products that some outputs of a tile need."""
        return tuple(
            product
            for product in range(self.products)
            if any(self.a_t[output][product] != 0 for output in wanted)
        )

    def needs(self, early: int) -> tuple[int, ...]:
        """How many of the first `early` steps each step waits for: what it reads, or overwrites."""
        met: dict[int, int] = {}  # the last of them that reads or writes an operand
        for number, step in enumerate(self.steps[:early]):
            met.update(dict.fromkeys((step.dst, step.a, step.b), number + 1))
        own = range(self.products, 2 * self.products)  # inputs are only read
        return tuple(
            max((met.get(at, 0) for at in (step.a, step.b, step.dst) if at in own), default=0)
            for step in self.steps
        )

    def scratch(self) -> bool:
        """Whether the steps need a tile beside inputs and transformed inputs."""
        return any(step.dst == 2 * self.products for step in self.steps)


def _matrix(text: str) -> Matrix:
    return tuple(tuple(Fraction(word) for word in row.split()) for row in text.split(";"))


F23 = Transform(
    name="F(2,3)",
    outputs=2,
    b_t=_matrix("1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1"),
    g=_matrix("1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1"),
    a_t=_matrix("1 1 1 0; 0 1 -1 -1"),
    steps=(
        TransformStep(5, 1, 1.0, 2),
        TransformStep(6, 1, -1.0, 2),
        TransformStep(4, 2, -1.0, 0),
        TransformStep(7, 3, -1.0, 1),
    ),
    apart=(1,),
    held=(1, 1, 1, 1),
    banks=2,
    copies=2,
)

# The points are 0, 1, -1, 2, -2 and infinity. Differences e_r = d(r+2) - d(r) are computed into the
# places of v4 (e2), v0 (e0), v5 (e3) and the scratch tile (e1); a = d4 - 4 d2 into that of v2. What
# needs no difference comes before what does, which another engine may make meanwhile.
F43 = Transform(
    name="F(4,3)",
    outputs=4,
    b_t=_matrix(
        "4 0 -5 0 1 0; 0 -4 -4 1 1 0; 0 4 -4 -1 1 0; 0 -2 -1 2 1 0; 0 2 -1 -2 1 0; 0 4 0 -5 0 1"
    ),
    g=_matrix("1/4 0 0; -1/6 -1/6 -1/6; -1/6 1/6 -1/6; 1/24 1/12 1/6; 1/24 -1/12 1/6; 0 0 1"),
    a_t=_matrix("1 1 1 1 1 0; 0 1 -1 2 -2 0; 0 1 1 4 4 0; 0 1 -1 8 -8 1"),
    steps=(
        TransformStep(10, 2, -1.0, 4),
        TransformStep(6, 0, -1.0, 2),
        TransformStep(11, 3, -1.0, 5),
        TransformStep(8, 2, -4.0, 4),
        TransformStep(12, 1, -4.0, 3),
        TransformStep(7, 8, 1.0, 12),
        TransformStep(8, 12, -1.0, 8),
        TransformStep(12, 1, -1.0, 3),
        TransformStep(9, 12, 2.0, 10),
        TransformStep(6, 6, -4.0, 10),
        TransformStep(10, 12, -2.0, 10),
        TransformStep(11, 12, -4.0, 11),
    ),
    apart=(3,),
    held=(1, 1, 1, 2, 2, 1),
    banks=3,
    copies=5,
)

TRANSFORMS = {transform.name: transform for transform in (F23, F43)}
# Of a pair of frames. Its steps are its stages, in their order: see `stages.py`.
OUTER = F23


def transform_of(name: str) -> Transform:
    """The transform of this name."""
    if name not in TRANSFORMS:
        raise PlanError(f"a transform {name!r}: one of {', '.join(TRANSFORMS)}.")
    return TRANSFORMS[name]


@lru_cache(maxsize=16)
def nested(outer: Transform, inner: Transform) -> Transform:
    """`outer` along one axis around `inner` along another; inputs are numbered along `inner` first.

    Steps of `outer` come first, each on all inputs of `inner`, into scratch tiles.
    """
    count, steps = outer.products * inner.products, []
    for step in outer.steps:
        first, made = 2 * count + 1, (step.dst - outer.products) * inner.products
        for at in range(inner.products):
            a, b = (operand * inner.products + at for operand in (step.a, step.b))
            steps.append(TransformStep(first + at, a, step.scale, b))
        places = (
            *range(first, first + inner.products),
            *range(count + made, count + made + inner.products),
            2 * count,
        )
        steps += [
            TransformStep(places[own.dst], places[own.a], own.scale, places[own.b])
            for own in inner.steps
        ]
    return Transform(
        name=f"{outer.name} x {inner.name}",
        outputs=outer.outputs * inner.outputs,
        b_t=_kron(outer.b_t, inner.b_t),
        g=_kron(outer.g, inner.g),
        a_t=_kron(outer.a_t, inner.a_t),
        steps=tuple(steps),
        apart=inner.apart,
        held=tuple(a * b for a in outer.held for b in inner.held),
        banks=inner.banks,
        copies=inner.copies,
    )


def whole_of(transform: Transform, *, pairs: bool) -> Transform:
    """A transform along rows, with that of frames around it if they are in pairs."""
    return nested(OUTER, transform) if pairs else transform


def _kron(a: Matrix, b: Matrix) -> Matrix:
    return tuple(tuple(x * y for x in row for y in other) for row in a for other in b)
