"""Stage 4: calibrate. Times of small kernels, and the constants that would have given them."""

from __future__ import annotations

import json
import platform
from dataclasses import fields
from datetime import datetime, timezone
from typing import Any, Final

from nkisim.machine import Timing
from trnconv.bringup.fit import Fitted, Measure, fitted
from trnconv.bringup.ladder import GREEN, RED, Bench, Check, Finding
from trnconv.bringup.timing_kernels import Clocked, clocked_of

STAGE: Final = 4


def checks() -> tuple[Check, ...]:
    """One check: all constants are fitted together."""
    asks = "constants of the timing model, from times of small kernels"
    return (Check(STAGE, "calibrate", asks, calibrate),)


def calibrate(bench: Bench) -> Finding:
    """Measure, fit, and write the machine's file."""
    constants = fitted(clocked_of(bench.cores), bench.machine, bench.cores, measure_of(bench))
    known = [constant for constant in constants if constant.value is not None]
    if not known:
        return Finding(RED, "no constant can be told from the times")
    path = bench.folder / file_name(bench)
    path.write_text(json.dumps(document(constants, bench), indent=1) + "\n", encoding="utf-8")
    words = ", ".join(
        f"{constant.field} {constant.value:.4g} ({constant.published:.4g})" for constant in known
    )
    return Finding(GREEN, f"{path.name}: {words}", {"file": str(path)})


def file_name(bench: Bench) -> str:
    """What a simulator was fitted to is not called measured."""
    kind = "measured" if bench.runner.is_device else "simulated"
    return f"machine-{bench.machine.base_name}-{kind}.json"


def measure_of(bench: Bench) -> Measure:
    """The time, or the difference of two times, that decides a constant."""

    def measure(clocked: Clocked) -> float:
        times = [
            bench.runner.duration_ns(clocked.kernel, (*clocked.arrays, *constants))
            for constants in (clocked.many, clocked.few)
            if constants is not None
        ]
        return times[0] - sum(times[1:])

    return measure


def document(constants: list[Fitted], bench: Bench) -> dict[str, Any]:
    """The file of a machine: constants with units, and all that the times do not tell."""
    known = {constant.field: constant for constant in constants if constant.value is not None}
    others = [field.name for field in fields(Timing) if field.name not in known]
    return {
        "machine": bench.machine.base_name,
        "kind": "measured" if bench.runner.is_device else "simulated",
        "host": platform.node(),
        "sdk": bench.runner.where,
        "date": datetime.now(timezone.utc).date().isoformat(),
        "constants": {
            name: {"value": constant.value, "unit": constant.unit, "before": constant.published}
            for name, constant in known.items()
        },
        "times_ns": {constant.field: constant.measured_ns for constant in constants},
        "not_identifiable": others,
    }
