"""Forecast: modelled times of kernels whose times nobody has published, so that we can be scored.

Layers of ours by their plans, and what nki-library's conv3d is expected to take, by a kernel of our
own that follows its design (`benchmarks/scatter.py`). Kernels of a checkout of nki-library itself
are in `library_forecast.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.scatter import scatter_ns
from nkisim.machine import CONSTANTS_VERSION, TRN2, TRN3, Machine, Reading
from trnconv.cases import find
from trnconv.geometry import ConvShape, conv_shape
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.policy import DIRECT, Policy
from trnconv.report.schedules import time_layer

RECORD = Path(__file__).with_name("forecast.json")
OURS, DESIGN, LIBRARY = "ours", "design", "library"  # parts of the record
MACHINES = (TRN2, TRN3)
LAYERS = (
    *("wan_96_wide", "wan_192_wide", "wan_384_720p_1_frame", "wan_to_rgb", "wan_from_latent"),
    *("wan_after_upsampling", "cogvideox_512", "hunyuan_128_wide", "wan_pointwise_384"),
    "image_1024",
)
OF_DESIGN = ("wan_96_wide", "wan_384_720p_1_frame", "cogvideox_512", "image_1024")
CUBES = (64, 128, 192)  # sides of the images that a published torch baseline has


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What is expected of one kernel on one machine, in microseconds, without launch."""

    kernel: str
    shape: str
    dtype: str
    machine: str
    optimistic_us: float
    default_us: float
    pessimistic_us: float
    recipe: str  # what runs: a plan in words, or the call
    command: str = ""  # which says the same again
    cores: int = 1
    constants: str = CONSTANTS_VERSION

    @property
    def interval_us(self) -> tuple[float, float]:
        """The least and the most of the three readings."""
        times = (self.optimistic_us, self.default_us, self.pessimistic_us)
        return min(times), max(times)


def three_readings(ns_of: Callable[[Reading], float]) -> dict[str, float]:
    """The fields of a forecast that are times."""
    return {f"{reading.value}_us": ns_of(reading) / 1e3 for reading in Reading}


def cube(side: int) -> ConvShape:
    """The 3-D convolution of a published benchmark: 64 channels, 32 frames, a square image."""
    return conv_shape((1, 64, 32, side, side), (64, 64, 3, 3, 3), padding=1)


def our_layers() -> Iterator[Forecast]:
    """Named layers on one core of each machine, and the published benchmark's shapes on trn2."""
    for machine in MACHINES:
        for name in LAYERS:
            case = find(name)
            yield _ours(name, case.shape, case.dtype, machine, layer_command(name, machine))
    for side in CUBES:
        command = (
            f"trnconv time --channels 64 --kernel 3x3x3 --size 32x{side}x{side} --padding 1"
            f" --dtype float16 --accuracy {DIRECT} --cores 1"
        )
        yield _ours(f"conv3d of 32 x {side} x {side}", cube(side), "float16", TRN2, command)


def layer_command(name: str, machine: Machine) -> str:
    """What times a named layer in the same way."""
    return f"trnconv time {name} --accuracy {DIRECT} --machine {machine.name} --cores 1"


def _ours(name: str, shape: ConvShape, dtype: str, machine: Machine, command: str) -> Forecast:
    problem = ConvProblem(shape, machine, dtype, policy=Policy(DIRECT))
    timed = time_layer(problem, cores=1)
    plan, launches = timed.longest.taken.plan.in_words(), len(timed.launches)
    return Forecast(
        kernel=name,
        shape=in_words(shape),
        dtype=dtype,
        machine=machine.name,
        recipe=plan if launches == 1 else f"{launches} launches; the longest: {plan}",
        command=command,
        **three_readings(timed.ns),
    )


def library_design() -> Iterator[Forecast]:
    """nki-library's conv3d by its design, on one core of trn2."""
    for name in OF_DESIGN:
        shape = find(name).shape
        yield Forecast(
            kernel=name,
            shape=in_words(shape),
            dtype="bfloat16",
            machine=TRN2.name,
            recipe="benchmarks/scatter.py",
            **_design_times(shape),
        )


def _design_times(shape: ConvShape) -> dict[str, float]:
    return three_readings(lambda reading: scatter_ns(shape, TRN2, reading))


def in_words(shape: ConvShape) -> str:
    """Channels, taps, input and padding of a convolution."""
    taps, size = ("x".join(map(str, numbers)) for numbers in (shape.kernel, shape.size))
    padding = " ".join(
        str(before) if before == after else f"{before}+{after}"
        for before, after in zip(shape.pad_before, shape.pad_after, strict=True)
    )
    batch = f"{shape.batch} x " if shape.batch > 1 else ""
    return f"{batch}{shape.c_in} to {shape.c_out}, {taps}, input {size}, padding {padding}"


def read_record(path: Path = RECORD) -> dict[str, Any]:
    """What was forecast last: a date, lists of forecasts, and what could not run."""
    if not path.exists():
        return {}
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for part in (OURS, DESIGN, LIBRARY):
        record[part] = [Forecast(**fields) for fields in record.get(part, [])]
    return record


def write_record(record: dict[str, Any], path: Path = RECORD) -> None:
    """The same, for `read_record`."""
    plain = dict(record)
    for part in (OURS, DESIGN, LIBRARY):
        plain[part] = [asdict(forecast) for forecast in record.get(part, [])]
    path.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
