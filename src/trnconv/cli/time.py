"""`trnconv time`: how long a layer would take, in every reading of what is not published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trnconv.cli.heartbeat import working
from trnconv.cli.hints import hint
from trnconv.cli.layer_options import (
    Accuracy,
    Cores,
    LayerOptions,
    LayerRequest,
    MachineName,
    asked_layer,
    asked_problem,
    with_layer,
)
from trnconv.cli.model_options import TunedFile
from trnconv.cli.output import Json, console, print_json, table

if TYPE_CHECKING:
    from trnconv.report.schedules import TimedLayer

ENGINES = ("tensor", "vector", "scalar", "gpsimd", "dma", "dma issue")


@with_layer
def time(
    layer: LayerOptions,
    machine: MachineName = "trn2",
    accuracy: Accuracy = "bf16",
    cores: Cores = None,
    tuned: TunedFile = None,
    json: Json = False,
) -> None:
    """Schedule a layer's kernel: modelled time, bound, engine use, HBM traffic."""
    from trnconv.planner.tuned_plans import use_tuned
    from trnconv.report.schedules import time_layer

    named = asked_layer(layer)
    with use_tuned(tuned), working(f"scheduling {named.name}"):
        problem = asked_problem(named, machine, accuracy)
        answer = _answer(named, time_layer(problem, cores=cores))
    if json:
        print_json(answer)
    else:
        _show(answer)


def _answer(named: LayerRequest, timed: TimedLayer) -> dict[str, Any]:
    from trnconv.report.schedules import READINGS

    longest = timed.longest
    memory, machine = longest.memory, timed.machine
    return {
        "kind": "modelled",
        "layer": {"name": named.name, "note": named.note, "in_words": named.in_words()},
        "machine": machine.name,
        "constants_version": machine.constants,
        "cores": timed.launched,
        "dtype": named.dtype,
        "accuracy": timed.problem.policy.accuracy,
        "plan": longest.taken.plan.in_words(),
        "launches": len(timed.launches),
        "readings": {reading.value: _reading(timed, reading) for reading in READINGS},
        "launch_ns": {
            reading.value: len(timed.launches) * line.launch_ns
            for reading, line in longest.timelines.items()
        },
        "multiply_adds": timed.problem.shape.macs(),
        "hbm_bytes": timed.hbm_bytes,
        "static_instructions": timed.static_instructions,
        "executed_instructions": timed.executed_instructions,
        "sbuf_peak_bytes_per_partition": memory.sbuf_peak_bytes_per_partition,
        "sbuf_usable_bytes_per_partition": machine.sbuf_usable_bytes_per_partition,
        "psum_peak_banks": memory.psum_peak_banks,
        "psum_banks": machine.psum_banks,
    }


def _reading(timed: TimedLayer, reading: Any) -> dict[str, Any]:
    ns = timed.ns(reading)
    return {
        "ns": ns,
        "bound": timed.longest.timelines[reading].bound,
        "of_peak": timed.of_peak(reading),
        "mfu": timed.array_use(reading),
        "hbm_gb_per_s": timed.hbm_bytes / ns,
        "busy": timed.busy_shares(reading),
    }


def _show(answer: dict[str, Any]) -> None:
    from trnconv.problem.cores import describe_cores
    from trnconv.report.numbers import measured_in

    screen = console()
    screen.print(answer["layer"]["in_words"], markup=False)
    screen.print(
        f"Modelled: {answer['machine']}, constants {answer['constants_version']},"
        f" {describe_cores(answer['cores'])}, {answer['dtype']}, accuracy"
        f" {answer['accuracy']}; {measured_in(answer['machine'])}."
    )
    screen.print(f"Plan: {answer['plan']}.", markup=False)
    screen.print()
    screen.print(_by_reading(answer["readings"]))
    screen.print()
    screen.print(_busy(answer["readings"]))
    screen.print()
    for line in _lines(answer):
        screen.print(line)


def _by_reading(readings: dict[str, Any]) -> Any:
    shown = table("", "reading", "time, us", "bound", "of peak", "MFU", "HBM, GB/s")
    for name, reading in readings.items():
        shares = (
            f"{reading['of_peak']:.1%}",
            f"{reading['mfu']:.1%}",
            f"{reading['hbm_gb_per_s']:.1f}",
        )
        shown.add_row(name, f"{reading['ns'] / 1e3:,.1f}", reading["bound"], *shares)
    return shown


def _busy(readings: dict[str, Any]) -> Any:
    engines = [
        name for name in ENGINES if any(name in reading["busy"] for reading in readings.values())
    ]
    shown = table("", "busy", *engines)
    for name, reading in readings.items():
        shown.add_row(name, *(f"{reading['busy'].get(engine, 0.0):.1%}" for engine in engines))
    return shown


def _lines(answer: dict[str, Any]) -> list[str]:
    launches, launch_us = answer["launches"], answer["launch_ns"]["default"] / 1e3
    peak, usable = (answer[f"sbuf_{kind}_bytes_per_partition"] for kind in ("peak", "usable"))
    static, executed = answer["static_instructions"], answer["executed_instructions"]
    return [
        f"work          {answer['multiply_adds'] / 1e9:,.2f} G multiply-adds, if done directly:",
        "              `of peak` counts those, `MFU` the ones that the array does",
        f"HBM traffic   {answer['hbm_bytes'] / 1e6:,.1f} MB",
        f"instructions  {static:,} static, {executed:,} executed",
        f"SBUF          {peak:,} of {usable:,} bytes a partition",
        f"PSUM          {answer['psum_peak_banks']} of {answer['psum_banks']} banks",
        f"launches      {launches}, not in the times: {launch_us:,.1f} us more",
        f"may help      {hint(answer['readings']['default']['bound'])}",
    ]
