"""docs/predictions.md from the record of forecasts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nkisim.machine import CONSTANTS_VERSION
from validation.forecast import DESIGN, LIBRARY, OURS, Forecast
from validation.markdown import duration, table

HEAD = """# Predictions

What we expect of kernels whose times nobody has published, written down before anybody has run
them. Every time here is modelled by nkisim (constants version {version}, {date}); nothing ran on a
Neuron device. [Validation](validation.md) says how the model does on kernels with published times.

This page is generated, do not edit it:

```sh
python -m validation forecast --date {date} --nki-library CHECKOUT
```

Without `--nki-library` the section of that library stays as it was. Earlier predictions are in the
history of `validation/forecast.json`.

## How to score us

Run one of these kernels on one core of the machine named, outside of a larger graph, and take the
time of the kernel on the device from the profiler, without the launch: the median of ten runs after
five. On trn2 and trn3, one core means `NEURON_LOGICAL_NC_CONFIG=1`. Then

- the **ratio** is the default time over yours, as in the table of published rows: above 1, the
  model is slower than the device;
- a prediction **holds** if your time lies in the interval;
- over several kernels, count what the [validation](validation.md) counts: the median of
  |ratio - 1|, those within 15 % and 40 %, those inside the interval.

A compiler may change the stream: if the ratio is far from 1, the number of instructions by engine
in your profile, next to ours (`trnconv trace`), tells a wrong constant from another stream. Send
what you find as an issue, with machine, SDK version, commit of trnconv and date, whatever it is.

"""

OURS_TEXT = """## Layers of trnconv

The plan is what the planner takes with `accuracy="direct"`; the command prints it with the time
again. On a device, the same convolution runs with `backend="neuron"`
([On a device](guides/on-a-device.md)).

"""

KNOWN_TEXT = """## A published baseline

The last three layers above have a published counterpart, which is no prediction: PyTorch's own
conv3d on a Trainium2, both cores of an LNC2 pair, and an NKI kernel of the same source, rolled, of
which both programs do all the work (Deep-Learning-Profiling-Tools/Tilebench, results/B200/csv at
0cb3588, columns torch_nki_ms and nki_ms; fp16, 64 to 64 channels, 3 x 3 x 3, 32 frames). Our layers
take padding 1 on every side and one core.

"""

DESIGN_TEXT = """## nki-library's conv3d, by its design

Expected of `experimental/conv/conv3d.py` of aws-neuron/nki-library (092a49d) on one core. These
times are of a kernel of our own that follows its design, `benchmarks/scatter.py`: every tap's view
of the input is copied into a dense tile and multiplied. They are a prediction of the design; its
own source is below, where a checkout had it.

"""

LIBRARY_TEXT = """## Kernels of nki-library, from their source

Run in nkisim, without values, unmodified, from a checkout at {commit}; one core.

"""

NOT_RUN_TEXT = """### Not run

Named here so that whoever has a newer checkout can fill them in with the command above.

"""

KNOWN = (  # side, torch's ms, the rolled kernel's ms
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


def _cells(one: Forecast, last: tuple[str, ...]) -> list[str]:
    low, high = one.interval_us
    cells = [
        one.kernel,
        one.shape,
        f"{one.machine} {one.dtype}",
        duration(one.default_us),
        f"{duration(low)} to {duration(high)}",
        one.constants,
        one.recipe if last == ("plan", "command") else f"`{one.recipe}`",
    ]
    return [*cells, f"`{one.command}`"] if "command" in last else cells


def _known() -> str:
    lines = [
        (f"32 x {side} x {side}", f"{torch_ms:g} ms", f"{rolled_ms:g} ms")
        for side, torch_ms, rolled_ms in KNOWN
    ]
    columns = ("image", "PyTorch, two cores, published", "rolled NKI kernel, published")
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
