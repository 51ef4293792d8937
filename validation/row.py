"""Row: one published measurement, and the kernel that follows its instruction stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from nkisim import Spec, find_machine

GROUPS = ("instruction rates", "data movement", "whole kernels")


@dataclass(frozen=True, kw_only=True)
class Row:
    """A published time and what to model for it."""

    number: str  # in the collection of published measurements; letters tell variants apart
    group: str = "whole kernels"  # one of GROUPS
    title: str
    machine: str
    dtype: str
    published_us: float
    published_as: str = ""  # the figure as published, where it is not a time
    source: str
    includes_launch: bool = True  # whether the figure spans the whole execution of a kernel
    launch_us: float | None = None  # what the source gives for a launch, where it is the host's
    stream: str  # one sentence: what the engines are asked to do
    kernel: Callable[..., Any]
    arguments: tuple[Spec, ...]
    options: dict[str, Any] = field(default_factory=dict)  # static arguments of the kernel
    cores: int = 1  # programs of the launch; a kernel of two reads nl.program_id
    repeats: int = 0  # the figure is for one more of what the kernel does `repeats` times: its
    # option of that name is tried with this and with twice this number, and the slope is taken
    chosen_after: str = ""  # what of the stream was chosen with the figure in sight, if anything
    note: str = ""  # one sentence: where modelled and published differ, and why


def us_from_mfu(percent: float, name: str, flops: float) -> float:
    """The time of so many operations at a share of the Tensor engine's peak."""
    machine = find_machine(name)
    peak_per_us = 2 * machine.partitions**2 * machine.timing.pe_ghz * 1e3
    return flops / (peak_per_us * percent / 100)
