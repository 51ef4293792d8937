"""`python -m benchmarks scaling`: one decode of a large video on 1 to 128 cores.

One rank of each number of cores, the one with most to do, runs on the meta device with the code of
`trnconv.parallel`; `trnconv.parallel.cost` prices what it does. A rank is a logical core, a pair of
physical ones unless `--lnc 1` asks for one. Of the meshes of so many ranks, those whose bands have
least to read are tried, with bands convolved while halos travel where that pays.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.table import Column, aligned, significant
from nkisim.fabric import FABRICS
from nkisim.machine import CONSTANTS_VERSION, MACHINES, TRN2, Reading
from trnconv.errors import TrnconvError
from trnconv.models import ModelEntry, Size, find

HELP = "one decode of a large video on 1 to 128 cores: table and curve"
CORES = (1, 2, 4, 8, 16, 32, 64, 128)
STATED = (8, 64)  # cores of the last line: a chip, and half an instance
_HOUR_S = 3600


@dataclass(frozen=True)
class Job:
    """One point to find."""

    model: str
    size: str
    phase: str
    mesh: tuple[int, int]  # ranks down and across
    lnc: int  # physical cores of a rank
    machine: str
    reading: str
    compares: bool  # with what it takes without overlap

    @property
    def cores(self) -> int:
        """Physical ones."""
        return self.lnc * self.mesh[0] * self.mesh[1]


@dataclass(frozen=True)
class Point:
    """One number of cores, cut one way. Times are modelled, in seconds."""

    cores: int  # physical
    mesh: str
    share: float  # of the video, for a core of the rank that has most
    seconds: float
    without_overlap: float
    convolutions: float
    boundaries: float  # of convolutions
    launches: float  # of boundaries
    attention: float
    copies: float
    halos: float
    hidden: float  # of halos
    gathers: float
    statistics: float
    others: float  # norms, activations, other copies
    received_gb: float


def measure(job: Job) -> Point:
    """A point of the curve."""
    from trnconv.parallel.cost import (  # noqa: PLC0415 (torch: for this command only)
        Part,
        core_time,
    )
    from trnconv.parallel.overlap import NEVER, LinkedCore  # noqa: PLC0415 (as above)

    entry = find(job.model)
    instance = LinkedCore.of(MACHINES[job.machine], Reading(job.reading), job.lnc)
    part = Part(entry, size_of(entry, job.size), job.phase, job.mesh)
    time = core_time(part, instance)
    compared = job.compares and part.ranks > 1
    plain = core_time(replace(part, overlap=NEVER), instance) if compared else time
    return Point(
        cores=job.cores,
        mesh=f"{job.mesh[0]} x {job.mesh[1]}",
        share=time.largest_share / job.lnc,  # of a core
        seconds=time.seconds,
        without_overlap=plain.seconds,
        convolutions=time.convolutions_s,
        boundaries=time.boundary_s,
        launches=time.launches_s,
        attention=time.attention_s,
        copies=time.copies_s,
        halos=time.halos_s,
        hidden=time.hidden_s,
        gathers=time.gathers_s,
        statistics=time.statistics_s,
        others=time.others_s,
        received_gb=time.received_bytes / 1e9,
    )


def size_of(entry: ModelEntry, text: str) -> Size:
    """One of the registry, or FRAMESxHEIGHTxWIDTH."""
    if text.count("x") != 2:
        return entry.size(text)
    frames, height, width = map(int, text.split("x"))
    return Size(text, frames, height, width)


def meshes(ranks: int, latent: tuple[int, int], count: int) -> list[tuple[int, int]]:
    """Ranks down and across whose largest band, with a row or column around it, is smallest."""
    rows, columns = latent

    def read(mesh: tuple[int, int]) -> int:
        return (-(-rows // mesh[0]) + 2) * (-(-columns // mesh[1]) + 2)

    fitting = [
        (down, ranks // down)
        for down in range(1, ranks + 1)
        if ranks % down == 0 and down <= rows and ranks // down <= columns
    ]
    return sorted(fitting, key=read)[:count]


def points_of(jobs: Sequence[Job], workers: int) -> Iterator[Point]:
    """Points as they are done."""
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        for done, point in enumerate(pool.imap(measure, jobs), 1):
            print(
                f"{done} of {len(jobs)}  {point.cores} cores, {point.mesh}",
                file=sys.stderr,
                flush=True,
            )
            yield point


def curve(points: Sequence[Point]) -> list[Point]:
    """For each number of cores, the faster way to cut."""
    numbers = sorted({point.cores for point in points})
    return [
        min((p for p in points if p.cores == number), key=lambda p: p.seconds) for number in numbers
    ]


def speedup(points: Sequence[Point], cores: int) -> float:
    """Over one core."""
    by_cores = {point.cores: point for point in points}
    return by_cores[1].seconds / by_cores[cores].seconds


def videos_an_hour(point: Point, instance_cores: int) -> float:
    """Of one instance that decodes as many videos at once as it has such numbers of cores."""
    return instance_cores // point.cores / point.seconds * _HOUR_S


def lost_to(points: Sequence[Point], cores: int) -> dict[str, float]:
    """Core-seconds per core beyond an even share of one core's time, by reason."""
    by_cores = {point.cores: point for point in points}
    single, many = by_cores[1], by_cores[cores]
    uneven = single.convolutions * (many.share - 1 / cores)
    bands = many.convolutions - many.boundaries
    return {
        "uneven bands": uneven,
        "slower convolutions of narrow bands": bands - single.convolutions * many.share,
        "boundaries convolved apart": many.boundaries + many.launches,
        "copies of bands and boundaries beside halos": many.copies,
        "halos that nothing hides": many.halos - many.hidden,
        "attention: gathers, and its uneven share": many.gathers
        + many.attention
        - single.attention / cores,
        "statistics": many.statistics,
        "norms, activations and other copies": many.others - single.others / cores,
    }


def table(points: Sequence[Point]) -> str:
    """One line for each number of cores."""
    names = (
        "s",
        "speed-up",
        "per core",
        "largest /\neven band",
        "convolu-\ntions, s",
        "boundary\ns",
    )
    columns = [Column("cores"), Column("mesh", "<"), *(Column(name) for name in names)]
    beside = ("copies\ns", "halos\ns", "of it\nhidden, s", "attention\ns", "gathers\ns")
    columns += [
        Column(name) for name in (*beside, "others\ns", "received\nGB", "without\noverlap, s")
    ]
    return aligned(columns, [_cells(point, points) for point in points])


def throughput(points: Sequence[Point], instance_cores: int) -> str:
    """What many videos gain or lose by more cores for each, in words."""
    rates = [
        f"{point.cores}: {videos_an_hour(point, instance_cores):.0f}"
        for point in points
        if point.cores <= instance_cores
    ]
    return (
        f"videos an hour on an instance of {instance_cores} cores, by cores of a video:"
        f" {', '.join(rates)}; more instances add up"
    )


def _cells(point: Point, points: Sequence[Point]) -> list[str]:
    faster = speedup(points, point.cores)
    return [
        f"{point.cores}",
        point.mesh,
        significant(point.seconds),
        f"{faster:.2f}",
        f"{100 * faster / point.cores:.0f} %",
        f"{point.share * point.cores:.2f}",
        significant(point.convolutions),
        significant(point.boundaries),
        significant(point.copies),
        significant(point.halos),
        significant(point.hidden),
        significant(point.attention),
        significant(point.gathers),
        significant(point.others),
        significant(point.received_gb),
        significant(point.without_overlap),
    ]


def why(points: Sequence[Point]) -> str:
    """Where the time goes that an ideal curve would not have, for the larger numbers."""
    lines = []
    for point in points:
        if point.cores > 1:
            lost = sorted(lost_to(points, point.cores).items(), key=lambda each: -each[1])
            whole = point.seconds
            named = [f"{name} {100 * s / whole:.0f} %" for name, s in lost if s > 0.005 * whole]
            lines.append(f"{point.cores:>3} cores lose to  {', '.join(named) or 'nothing'}")
    return "\n".join(lines)


def bend(points: Sequence[Point]) -> str:
    """The step that gains least for what it adds, and what it loses most to, in words."""
    if len(points) < 2:
        return ""
    steps = list(pairwise(points))
    before, after = min(steps, key=lambda it: _spent(it[0]) / _spent(it[1]))
    lost = {
        name: cores_s * after.cores - lost_to(points, before.cores)[name] * before.cores
        for name, cores_s in lost_to(points, after.cores).items()
    }
    worst = max(lost, key=lambda name: lost[name])
    return (
        f"bends most from {before.cores} to {after.cores} cores:"
        f" {before.seconds / after.seconds:.2f} times as fast, on {after.cores / before.cores:g}"
        f" times the cores; most of what is lost there: {worst}"
    )


def _spent(point: Point) -> float:
    """Core-seconds."""
    return point.seconds * point.cores


def drawing() -> Any:
    """matplotlib; TrnconvError if it is missing."""
    try:
        return importlib.import_module("matplotlib")
    except ImportError as missing:
        raise TrnconvError(
            "--svg: drawing needs matplotlib. Run `pip install 'trnconv[plots]'`."
        ) from missing


def draw(points: Sequence[Point], title: str, path: Path, instance_cores: int) -> None:
    """One video sooner, and many videos on an instance, as SVG, by matplotlib."""
    drawing().use("svg")
    plt = importlib.import_module("matplotlib.pyplot")
    figure, (left, many) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    figure.suptitle(title)
    _draw_one_video(left, points)
    _draw_many_videos(many, points, instance_cores)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _draw_many_videos(axes: Any, points: Sequence[Point], instance_cores: int) -> None:
    """What an instance decodes in an hour against what one video waits, by cores of a video."""
    seconds = [point.seconds for point in points]
    rates = [videos_an_hour(point, instance_cores) for point in points]
    axes.axhline(rates[0], linestyle="--", color="0.6", label="ideal")
    axes.plot(seconds, rates, marker="o", label="as it runs")
    for point, s, rate in zip(points, seconds, rates, strict=True):
        beside = {"xytext": (0, -14), "textcoords": "offset points", "ha": "center"}
        axes.annotate(str(point.cores), (s, rate), fontsize=8, **beside)
    axes.set_xscale("log", base=2)
    axes.set_ylim(0, 1.15 * rates[0])
    axes.set_xticks(seconds, [significant(s) for s in seconds], fontsize=8)
    axes.minorticks_off()
    axes.set(
        xlabel="seconds that one video waits",
        ylabel=f"videos an hour on an instance of {instance_cores} cores",
        title="many videos (labels: cores of each)",
    )
    axes.legend(loc="lower right")


def _draw_one_video(axes: Any, points: Sequence[Point]) -> None:
    cores = [point.cores for point in points]
    axes.plot(cores, cores, linestyle="--", color="0.6", label="ideal")
    axes.plot(cores, [speedup(points, n) for n in cores], marker="o", label="as it runs")
    if any(point.without_overlap != point.seconds for point in points):
        waiting = [points[0].seconds / point.without_overlap for point in points]
        axes.plot(cores, waiting, marker=".", linewidth=1, label="without overlap")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(cores, [str(n) for n in cores])
    axes.set_yticks(cores, [str(n) for n in cores])
    axes.set(xlabel="cores", ylabel="speed-up over one core", title="one video")
    axes.legend()


def add_options(parser: argparse.ArgumentParser) -> None:
    """What the command can be asked for."""
    parser.add_argument("--model", default="wan2.1")
    parser.add_argument("--size", default="720p81", help="of the registry, or 81x1024x1792")
    parser.add_argument("--phase", choices=("encode", "decode"), default="decode")
    parser.add_argument("--machine", choices=sorted(MACHINES), default=TRN2.name)
    readings = [reading.value for reading in Reading]
    parser.add_argument("--reading", choices=readings, default=Reading.default.value)
    parser.add_argument("--cores", type=int, nargs="+", default=list(CORES), help="physical ones")
    parser.add_argument(
        "--lnc", type=int, choices=(1, 2), help="cores of a rank; a launch's if none"
    )
    parser.add_argument("--meshes", type=int, default=1, metavar="N", help="to try of each number")
    parser.add_argument(
        "--compare", action="store_true", help="also without overlap: twice as long"
    )
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="processes")
    parser.add_argument("--svg", metavar="FILE", help="draw the curve there (matplotlib)")
    parser.add_argument("--json", metavar="FILE", help="write the points there, too")


def accumulations_of(options: argparse.Namespace, numbers: Sequence[int]) -> list[Job]:
    """A core alone, and for each larger number the meshes to try."""
    entry = find(options.model)
    size = size_of(entry, options.size)
    latent = size.height // entry.compression[1], size.width // entry.compression[2]
    lnc = options.lnc or MACHINES[options.machine].launch_cores
    jobs = []
    for cores in numbers:
        launch_cores = min(lnc, cores)
        if cores % launch_cores:
            raise TrnconvError(
                f"{cores} cores in ranks of {launch_cores}: a whole number of ranks."
            )
        for mesh in meshes(cores // launch_cores, latent, options.meshes):
            place = (options.model, options.size, options.phase, mesh, launch_cores)
            jobs.append(Job(*place, options.machine, options.reading, options.compare))
    return jobs


def main(options: argparse.Namespace) -> int:
    """Find every point, print table and reasons; the exit code."""
    numbers = sorted({1, *options.cores})
    jobs = accumulations_of(options, numbers)
    if options.svg:
        drawing()  # said before the work, not after it
    for name in (options.svg, options.json):
        if name:
            Path(name).touch()
    points = list(points_of(jobs, options.workers))
    chosen = curve(points)
    fabric = FABRICS[options.machine].read(Reading(options.reading))
    print(
        f"Modelled, {options.machine}, constants {CONSTANTS_VERSION}, {options.reading} reading,"
        f" bf16: {options.phase} of {options.model} at {options.size}.\n"
        "Convolutions by the planner, attention at the Tensor engine's peak, messages"
        f" {fabric.message_ns / 1000:g} us and bandwidth; norms, activations and copies by our"
        " kernels or by their bytes; no launches but those of boundaries. A rank is a logical core"
        f" of {options.lnc or MACHINES[options.machine].launch_cores} physical ones.\n"
    )
    instance_cores = fabric.cores_per_chip * fabric.chips
    rates = throughput(chosen, instance_cores)
    print(table(chosen), "", why(chosen), bend(chosen), rates, "", sep="\n")
    if options.svg:
        title = f"{options.model} {options.phase} {options.size}, modelled ({options.machine})"
        draw(chosen, title, Path(options.svg), instance_cores)
    if options.json:
        text = json.dumps([asdict(point) for point in points], indent=1)
        Path(options.json).write_text(text + "\n", encoding="utf-8")
    stated = [n for n in STATED if n in numbers] or numbers[-1:]
    print("speed-up " + ", ".join(f"{speedup(chosen, n):.1f} on {n} cores" for n in stated))
    return 0
