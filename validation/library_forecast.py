"""Forecasts for kernels of aws-neuron/nki-library, run shape-only from a checkout of it."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import nkisim
from nkisim import Kernel, Spec
from nkisim.errors import NkiValidationError
from nkisim.machine import Machine
from nkisim.running.environment import TARGET_VARIABLE
from trnconv.cases import find
from validation.forecast import MACHINES, Forecast, in_words, three_readings
from validation.launch_time import launch_time

PACKAGE = "nkilib_src"
CONV = "experimental.conv"


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a kernel of the library; Specs stand for tensors."""

    module: str  # inside of nkilib
    function: str
    shape: str
    arguments: dict[str, Any]

    @property
    def dtype(self) -> str:
        """Of the first tensor."""
        return str(
            next(
                argument for argument in self.arguments.values() if isinstance(argument, Spec)
            ).dtype
        )


def _conv1d(channels: int, length: int, taps: int) -> Call:
    return Call(
        module=f"{CONV}.conv1d",
        function="conv1d",
        shape=f"{channels} to {channels}, {taps}, input {length}, padding {taps // 2}",
        arguments={
            "x_in": Spec((1, channels, length), "bfloat16"),
            "filters": Spec((taps, channels, channels), "bfloat16"),
            "padding": (taps // 2, taps // 2),
        },
    )


def _depthwise(channels: int, width: int, taps: int) -> Call:
    return Call(
        module=f"{CONV}.depthwise_conv1d",
        function="depthwise_conv1d_implicit_gemm",
        shape=f"{channels} channels, {taps}, input {width}",
        arguments={
            "img_ref": Spec((1, channels, 1, width), "bfloat16"),
            "filter_ref": Spec((channels, 1, 1, taps), "bfloat16"),
            "padding": ((0, 0), (0, 0)),
            "stride": (1, 1),
            "feature_group_count": channels,
        },
    )


def _conv3d(name: str) -> Call:
    shape = find(name).shape
    return Call(
        module=f"{CONV}.conv3d",
        function="conv3d",
        shape=f"{name}: {in_words(shape)}",
        arguments={
            "x_in": Spec((shape.batch, shape.c_in, *shape.size), "bfloat16"),
            "filters": Spec((*shape.kernel, shape.c_in, shape.c_out), "bfloat16"),
            "padding": _six(shape.pad_before, shape.pad_after),
        },
    )


def _conv3d_bwd(name: str) -> Call:
    shape = find(name).shape
    dy = (shape.batch, shape.c_out, *shape.out_sizes())
    return Call(
        module=f"{CONV}.conv3d_bwd",
        function="conv3d_bwd",
        shape=f"{name}: {in_words(shape)}",
        arguments={
            "dy": Spec(dy, "bfloat16"),
            "x_in": Spec((shape.batch, shape.c_in, *shape.size), "bfloat16"),
            "filters": Spec((*shape.kernel, shape.c_in, shape.c_out), "bfloat16"),
            "padding": _six(shape.pad_before, shape.pad_after),
        },
    )


def _six(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[int, ...]:
    """Padding as the library writes it: both ends of each axis."""
    return tuple(pad for pair in zip(before, after, strict=True) for pad in pair)


CALLS = (
    _conv1d(384, 4096, 3),
    _conv1d(1024, 1500, 3),
    _depthwise(16, 512, 200),
    *(_conv3d(name) for name in ("wan_96_wide", "wan_384_720p_1_frame", "cogvideox_512")),
    *(_conv3d_bwd(name) for name in ("image_1024", "wan_384_720p_1_frame")),
)


def library_forecasts(
    checkout: Path, calls: tuple[Call, ...] = CALLS
) -> Iterator[Forecast | dict[str, str]]:
    """A forecast for each call and machine, or what kept it from running."""
    for machine in MACHINES:
        with _imported(checkout, machine):
            for call in calls:
                yield _forecast(call, machine)


def commit_of(checkout: Path) -> str:
    """The checkout's commit, as git says or NKILIB_COMMIT does."""
    asked = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False)  # noqa: S603 (git, on a folder that the caller names)
    return os.environ.get("NKILIB_COMMIT") or answer.stdout.strip() or "unknown"


def _forecast(call: Call, machine: Machine) -> Forecast | dict[str, str]:
    name = f"{call.module}.{call.function}"
    what = {"kernel": name, "shape": call.shape, "machine": machine.name}
    try:
        kernel = getattr(_module(call.module), call.function)
    except ModuleNotFoundError as error:
        return {**what, "why": f"the checkout has no module `{error.name}`"}
    launched = kernel if isinstance(kernel, Kernel) else nkisim.jit(kernel)
    try:
        run = nkisim.run(launched[1], machine=machine, values=False, lnc=1, **call.arguments)
    except (NkiValidationError, AttributeError) as error:
        return {**what, "why": f"nkisim refuses it: {str(error).splitlines()[0]}"}
    return Forecast(
        **what,
        dtype=call.dtype,
        recipe=_call_in_words(call),
        **three_readings(lambda reading: launch_time(run, machine, reading).makespan_ns),
    )


def _call_in_words(call: Call) -> str:
    given = ", ".join(
        f"{name}={'x'.join(map(str, argument.shape)) if isinstance(argument, Spec) else argument}"
        for name, argument in call.arguments.items()
    )
    return f"{call.function}[1]({given})"


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{PACKAGE}.nkilib.{name}")


@contextmanager
def _imported(checkout: Path, machine: Machine) -> Iterator[None]:
    """The library importable, for one machine: its modules read the machine when imported."""
    marks = sorted(checkout.rglob(str(Path(PACKAGE, "nkilib", "__init__.py"))))
    if not marks:
        raise FileNotFoundError(
            f"{checkout} has no {PACKAGE}/nkilib: name a checkout of aws-neuron/nki-library"
        )
    before, writing = os.environ.get(TARGET_VARIABLE), sys.dont_write_bytecode
    root = str(marks[0].parents[2])
    sys.path.insert(0, root)
    sys.dont_write_bytecode = True  # the checkout stays as it is
    os.environ[TARGET_VARIABLE] = machine.name
    try:
        yield
    finally:
        sys.path.remove(root)
        sys.dont_write_bytecode = writing
        del os.environ[TARGET_VARIABLE]
        if before is not None:
            os.environ[TARGET_VARIABLE] = before
        for name in [module for module in sys.modules if module.partition(".")[0] == PACKAGE]:
            del sys.modules[name]
