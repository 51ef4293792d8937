"""Timelines for the gallery: a residual block, the drain of a loop, two cores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nkisim
from manual.canvas import line, picture, text
from manual.lane_picture import Clock, Lanes, axis, every_op, legend
from nkisim import Kernel, Spec
from nkisim.commands.kernel_files import load_kernel
from nkisim.examples import EXAMPLES
from nkisim.machine import TRN2, Reading
from nkisim.timing import Timeline, schedule, schedule_launch
from trnconv.geometry import conv_shape
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.epilogue import AFTER, Epilogue
from trnconv.problem.policy import policy_of
from trnconv.report.schedules import time_layer

_WIDTH, _LEFT, _RIGHT = 1200, 118, 1176
_SILU = '''import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def silu(x):
    """SiLU of [rows, columns], a tile at a time."""
    side = nl.tile_size.pmax
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for first in range(0, x.shape[0], side):
        tile = nl.ndarray((side, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[first : first + side, :])
        nisa.activation(dst=tile, op=nl.silu, data=tile)
        nisa.dma_copy(dst=out[first : first + side, :], src=tile)
    return out
'''
_X, _W = (1, 128, 4, 64, 256), (128, 128, 1, 3, 3)
_FLAT = Spec((4096, 2048), "bfloat16")  # the same number of elements


def residual_block() -> str:
    """y = x + conv(silu(conv(x))) in four launches, and in two."""
    conv, silu = _conv(Epilogue()), _timed(_loaded(_SILU))
    add = _timed(EXAMPLES["vector_add"].kernel, 2)
    unfused = [("convolution", conv), ("SiLU", silu), ("convolution", conv), ("sum", add)]
    fused = [
        ("convolution + SiLU", _conv(Epilogue(activation="silu"))),
        ("convolution + residual", _conv(Epilogue(residual=AFTER))),
    ]
    longest = sum(timeline.makespan_ns for _, timeline in unfused)
    clock = Clock(_LEFT, _RIGHT, 0, longest)
    parts = _head(
        "A residual block: x + conv(silu(conv(x))), unfused above, fused below",
        "128 channels, 3x3, four frames of 64x256, bf16. One core, launches not counted;"
        f" modelled, trn2, constants {TRN2.constants}.",
    )
    every = [timeline for _, timeline in (*unfused, *fused)]
    shared, top = Lanes(every, clock), 104.0
    for row in (unfused, fused):
        parts += shared.empty(top)
        shift = 0.0
        for name, timeline in row:
            parts += shared.work(timeline, top, shift)
            parts += [text((clock.px(shift) + 4, top - 8), name, 14, font_weight="600")]
            shift += timeline.makespan_ns
            end = clock.px(shift)
            parts += [line((end, top - 20), (end, top + shared.height - 8), "mark")]
        parts += [text((_RIGHT, top - 26), f"{shift / 1e3:,.0f} us", 15, text_anchor="end")]
        top += shared.height + 56
    parts += axis(clock, top - 48, 50_000)
    parts += legend(every_op(every), _LEFT, top)
    return picture((_WIDTH, top + 22), "A residual block unfused and fused, modelled", parts)


def loop_drain() -> str:
    """The first iterations of a hardware loop."""
    kernel, arguments = EXAMPLES["looped_copy"]
    run = nkisim.run(kernel, *arguments, machine="trn2", lnc=1, values=False)
    timeline = schedule(run.trace, run.machine)
    repeated = timeline.elisions[0]
    iterations = [ns for _, ns in timeline.events.barriers if ns <= repeated.at_ns]
    clock = Clock(_LEFT, _RIGHT, 0, repeated.at_ns)
    each = repeated.ns_per_iteration / 1e3
    parts = _head(
        "A loop drains at every iteration",
        f"Copying tiles in a hardware loop: {each:.1f} us an iteration. Nothing of the next starts"
        f" before the last byte of this one. Modelled, trn2, constants {TRN2.constants}.",
    )
    drawn, top = Lanes([timeline], clock), 96.0
    parts += [*drawn.empty(top), *drawn.work(timeline, top)]
    for ns in iterations:
        x = clock.px(ns)
        parts += [line((x, top - 12), (x, top + drawn.height), "mark")]
    parts += axis(clock, top + drawn.height + 6, 5_000)
    y = top + drawn.height + 58
    parts += legend(every_op([timeline]), _LEFT, y)
    parts += [
        text((_LEFT + 150, y), "dashed: the end of an iteration, all engines and queues empty", 13)
    ]
    return picture((_WIDTH, y + 22), "The drain of a loop, modelled", parts)


def two_cores(page: Path) -> str:
    """The kernel of the cookbook's page on two cores."""
    source = page.read_text(encoding="utf-8").split('title="two_cores.py"\n')[1].split("```")[0]
    kernel = Kernel(_loaded(source))[2]
    argument = Spec((4096, 2048), "bfloat16")
    run = nkisim.run(kernel, argument, machine="trn2", values=False)
    both = schedule_launch(run.traces, run.machine, Reading.default, memories=run.memories)
    clock = Clock(_LEFT, _RIGHT, 0, max(timeline.makespan_ns for timeline in both))
    parts = _head(
        "Two cores, one program",
        "Each adds up half of the rows, then they swap sums (sendrecv) and write half of the"
        f" result. Modelled, trn2, constants {TRN2.constants}.",
    )
    shared, top = Lanes(list(both), clock), 110.0
    for core, timeline in enumerate(both):
        parts += [text((_LEFT, top - 9), f"core {core}", 14, font_weight="600")]
        parts += [*shared.empty(top), *shared.work(timeline, top)]
        top += shared.height + 34
    met = _meeting_ns(both[0])
    parts += [line((clock.px(met), 96), (clock.px(met), top - 34), "mark")]
    parts += [text((clock.px(met) - 6, 98), "they meet", 13, "faint", text_anchor="end")]
    parts += axis(clock, top - 26, 5_000)
    parts += legend(every_op(list(both)), _LEFT, top + 24)
    return picture((_WIDTH, top + 46), "Two cores that meet once, modelled", parts)


def _meeting_ns(timeline: Timeline) -> float:
    events = timeline.events
    every = enumerate(events.instructions)
    rows = [row for row, instruction in every if instruction.op == "sendrecv"]
    return events.start_ns[rows[0]]


def _head(title: str, about: str) -> list[str]:
    return [text((24, 36), title, 20, font_weight="600"), text((24, 60), about, 13, "faint")]


def _conv(epilogue: Epilogue) -> Timeline:
    shape = conv_shape(_X, _W, padding=(0, 1, 1))
    problem = ConvProblem(shape, TRN2, policy=policy_of("direct"), epilogue=epilogue)
    timed = time_layer(problem, (Reading.default,), cores=1)
    return timed.longest.timelines[Reading.default]


def _timed(kernel: Callable[..., Any], arguments: int = 1) -> Timeline:
    run = nkisim.run(kernel, *[_FLAT] * arguments, machine="trn2", lnc=1, values=False)
    return schedule(run.trace, run.machine)


def _loaded(source: str) -> Callable[..., Any]:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.py"
        file.write_text(source, encoding="utf-8")
        return load_kernel(str(file), "0.7")[1]
