"""Two cores of a depthwise convolution: half of the lines each, or half of every line's outputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trnconv.algorithms.depthwise.plan import Span, every_line
from trnconv.geometry import ConvShape, Triple
from trnconv.problem.conv_problem import ConvProblem, CoreSplit

_AXES = 2  # ways to cut outputs that are tried


def halves(problem: ConvProblem) -> list[tuple[ConvProblem, ConvProblem]]:
    """Whole tiles of lines, if both cores have as many; else also outputs, the most even cuts."""
    shape, side = problem.shape, problem.machine.partitions
    assert isinstance(shape, ConvShape)
    lines = every_line(shape)
    tiles = -(-lines // side)
    middle = -(-tiles // 2) * side
    shares = [((0, middle), (middle, lines))] if middle < lines else []
    cuts = [tuple(_share(shape, lines=span) for span in both) for both in shares]
    if tiles % 2:
        cuts += list(_outputs(shape))
    return [
        (replace(problem, core_split=first), replace(problem, core_split=second))
        for first, second in cuts
    ]


def _outputs(shape: ConvShape) -> Iterator[tuple[CoreSplit, CoreSplit]]:
    """Frames, rows or columns in two."""
    sizes = {name: shape.out_size(axis) for axis, name in enumerate(("frames", "rows", "columns"))}
    long = [name for name, size in sizes.items() if size > 1]
    for name in sorted(long, key=lambda name: sizes[name] % 2 / sizes[name])[:_AXES]:
        half = -(-sizes[name] // 2)
        yield _share(shape, **{name: (0, half)}), _share(shape, **{name: (half, sizes[name])})


def _share(shape: ConvShape, **parts: Span) -> CoreSplit:
    """A share of some axes, with all of the others."""
    return CoreSplit(**{"rows": (0, shape.out_size(1)), "channels": (0, shape.c_out), **parts})


def part_of(shape: ConvShape, share: CoreSplit) -> tuple[Triple, Triple]:
    """The outputs of a line that belong to a share, first and end."""
    frames = share.frames or (0, shape.out_size(0))
    columns = share.columns or (0, shape.out_size(2))
    return (frames[0], share.rows[0], columns[0]), (frames[1], share.rows[1], columns[1])
