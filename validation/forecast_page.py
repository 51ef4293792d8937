"""docs/predictions.md from the record of forecasts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nkisim.machine import CONSTANTS_VERSION
from validation.forecast import DESIGN, LIBRARY, OURS, Forecast
from validation.markdown import duration, table

HEAD = """# Predictions

This page has modelled times of kernels for which no measurements are published, so that anyone with
a device can check them later. The times are from nkisim (constants version {version}, {date});
nothing ran on a Neuron device. [Validation](validation.md) shows the errors of the model for
kernels with published times.

This page is generated; do not edit it:

```sh
python -m validation forecast --date {date} --nki-library CHECKOUT
```

Without `--nki-library` the section on that library is not changed. Earlier predictions are in the
history of `validation/forecast.json`.

## How to check a prediction

Run one of these kernels on one core of the named machine, outside of a larger graph. Take the time
of the kernel on the device from the profiler, without the launch overhead: the median of ten runs
after five warm-up runs. On trn2 and trn3, set `NEURON_LOGICAL_NC_CONFIG=1` to use one core. Then

- the **ratio** is the time of the default reading divided by yours, as in the validation table:
  above 1, the modelled time is longer than yours;
- a prediction **holds** if your time is in the interval;
- for several kernels, use the statistics of the [validation](validation.md): the median of |ratio -
  1|, the number within 15 % and 40 %, and the number inside the interval.

The compiler may change the instructions. If the ratio is far from 1, compare the number of
instructions per engine in your profile with ours (`trnconv trace`): equal numbers point to a wrong
constant, different ones to another program. Please report any result as an issue, with machine, SDK
version, commit of trnconv and date.

"""

OURS_TEXT = """## Layers of trnconv

The plan is chosen by the planner with `accuracy="direct"`; the command in the table prints the plan
and the time. On a device, the same convolution runs with `backend="neuron"`
([On a device](guides/on-a-device.md)).

"""

KNOWN_TEXT = """## A published baseline

For the last three layers above there are published measurements of other kernels: PyTorch's own
conv3d on a Trainium2, on both cores of an LNC2 pair, and an NKI kernel of the same source, with
hardware loops, of which both cores do all the work (Deep-Learning-Profiling-Tools/Tilebench,
results/B200/csv at 0cb3588, columns torch_nki_ms and nki_ms; fp16, 64 to 64 channels, 3 x 3 x 3, 32
frames). Our layers have a padding of 1 on every side and use one core.

"""

DESIGN_TEXT = """## nki-library's conv3d, by its design

Predicted times of `experimental/conv/conv3d.py` of aws-neuron/nki-library (092a49d) on one core.
They are modelled with a kernel of ours that follows its design, `benchmarks/scatter.py`: for every
tap, the input is copied into a dense tile and multiplied. The kernels in the next section are run
from the library's own source.

"""

LIBRARY_TEXT = """## Kernels of nki-library, from their source

Run in nkisim, without values, unmodified, from a checkout at {commit}; one core.

"""

NOT_RUN_TEXT = """### Not run

They can be added with the command above and a newer checkout.

"""

KNOWN = (  # side, torch's ms, the looped kernel's ms
    (64, 1.450, 9.194),
    (128, 5.767, 22.686),
    (192, 12.97, 41.830),
)


def render(record: dict[str, Any]) -> str:
    """The whole page."""
    parts = [
        HEAD.format(version=CONSTANTS_VERSION, date=record["date"]),
        OURS_TEXT,
        _table(record[OURS], ("plan", "command")),
        KNOWN_TEXT,
        _known(),
        DESIGN_TEXT,
        _table(record[DESIGN], ("kernel of ours",)),
        LIBRARY_TEXT.format(commit=record.get("commit", "")[:7] or "no commit yet"),
        _table(record[LIBRARY], ("call",)),
        _not_run(record.get("not_run", [])),
    ]
    return "".join(parts).rstrip("\n") + "\n"


def _table(forecasts: Sequence[Forecast], last: tuple[str, ...]) -> str:
    if not forecasts:
        return "Nothing yet.\n\n"
    columns = ("kernel", "shape", "machine", "default", "interval", "constants", *last)
    return table(columns, [_cells(forecast, last) for forecast in forecasts]) + "\n"


def _cells(forecast: Forecast, last: tuple[str, ...]) -> list[str]:
    low, high = forecast.interval_us
    cells = [
        forecast.kernel,
        forecast.shape,
        f"{forecast.machine} {forecast.dtype}",
        duration(forecast.default_us),
        f"{duration(low)} to {duration(high)}",
        forecast.constants,
        forecast.recipe if last == ("plan", "command") else f"`{forecast.recipe}`",
    ]
    return [*cells, f"`{forecast.command}`"] if "command" in last else cells


def _known() -> str:
    lines = [
        (f"32 x {side} x {side}", f"{torch_ms:g} ms", f"{looped_ms:g} ms")
        for side, torch_ms, looped_ms in KNOWN
    ]
    columns = ("image", "PyTorch, two cores, published", "looped NKI kernel, published")
    return table(columns, lines) + "\n"


def _not_run(missing: Sequence[dict[str, str]]) -> str:
    if not missing:
        return ""
    machines: dict[tuple[str, str, str], list[str]] = {}
    for skipped in missing:
        machines.setdefault((skipped["kernel"], skipped["shape"], skipped["why"]), []).append(
            skipped["machine"]
        )
    lines = [
        (kernel, shape, ", ".join(where), why) for (kernel, shape, why), where in machines.items()
    ]
    return NOT_RUN_TEXT + table(("kernel", "shape", "machine", "why"), lines)
