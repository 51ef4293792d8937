"""Plans as tables and sentences."""

from __future__ import annotations

from typing import Any

from trnconv.cli.hints import hint
from trnconv.cli.output import amount, console
from trnconv.cli.sheet import Field, Sheet, sheet
from trnconv.problem.cores import describe_cores
from trnconv.report.numbers import duration, measured_in

_MODULE = 30
_SHORT = 0.1  # seconds: below, milliseconds
_SMALL = 0.005  # of the time: what would be shown as 0 %
_LAYER_COLUMNS = (
    Field("module", words=True, least=16),
    Field("channels, taps", words=True),
    Field("input", rank=2),
    Field("calls"),
    Field("ms a call", "{:.3f}".format, rank=3),
    Field("s", "{:.3f}".format),
    Field("of all", "{:.1%}".format),
    Field("bound"),
    Field("instr.", rank=4),
    Field("plan", words=True, rank=5),
)
_OPERATION_COLUMNS = (
    Field("besides convolutions", words=True),
    Field("calls"),
    Field("GB", "{:.2f}".format, rank=1),
    Field("GB by torch's operators", "{:.2f}".format, rank=3),
    Field("s", "{:.3f}".format),
    Field("of all", "{:.1%}".format),
    Field("bound"),
    Field("priced as", rank=2),
)


def show_layer(answer: dict[str, Any]) -> None:
    """One layer."""
    screen = console()
    screen.print(answer["layer"]["in_words"], markup=False)
    screen.print(label(answer, f"{answer['dtype']}, accuracy {answer['accuracy']}"))
    screen.print()
    peak, usable = answer["sbuf_bytes_per_partition"], answer["sbuf_usable_bytes_per_partition"]
    for name, words in (
        ("time", f"{answer['ns'] / 1e3:,.1f} us by the planner's cost model"),
        ("bound", f"by {answer['bound']}"),
        ("may help", hint(answer["bound"])),
        ("plan", f"{answer['plan']}{origin(answer, ' ({})')}"),
        ("instructions", f"{answer['instructions']:,} static, budget {answer['budget']:,}"),
        ("HBM traffic", amount(answer["hbm_bytes"], "B")),
        ("SBUF", f"{peak:,} of {usable:,} bytes a partition"),
        ("launches", f"{answer['launches']}, not in the time"),
    ):
        screen.print(f"{name:<14}{words}", markup=False)
    screen.print()
    screen.print("Why this plan: `trnconv explain`. Engines over time: `trnconv trace`.")


def label(answer: dict[str, Any], more: str) -> str:
    """Where times come from."""
    return (
        f"Modelled: {answer['machine']}, constants {answer['constants_version']}, default reading,"
        f" {describe_cores(answer['cores'])}, {more}; {measured_in(answer['machine'])}."
    )


def show_model(answer: dict[str, Any], *, wide: bool = False) -> None:
    """A model: its layers, the heaviest first, and totals."""
    screen = console()
    size = answer["size"]
    screen.print(
        f"{answer['model']['title']}, {answer['phase']} of {size['height']}x{size['width']},"
        f" {size['frames']} {'frame' if size['frames'] == 1 else 'frames'}, batch"
        f" {answer['batch']}",
        markup=False,
    )
    screen.print(label(answer, f"{answer['dtype']}, accuracy {answer['accuracy']}"))
    screen.print()
    for line in latency_lines(answer):
        screen.print(line, markup=False)
    screen.print()
    layer_sheet(answer).show(screen, wide=wide)
    hidden = answer["distinct"] - len(answer["layers"])
    if hidden:
        screen.print(f"and {hidden} more convolutions: --top {answer['distinct']}, or --json")
    screen.print()
    _operations(answer).show(screen, wide=wide)
    screen.print(f"All else is {answer['operations_by']}.")
    screen.print()
    for name, words in _totals(answer):
        screen.print(f"{name:<14}{words}", markup=False)


def latency_lines(answer: dict[str, Any]) -> list[str]:
    """The first screen: seconds by cores, what is in them, what is not, what would change them."""
    least, most = (answer["between_seconds"][end] for end in ("least", "most"))
    by_bound = answer["share_by_bound"].items()
    bounds = ", ".join(f"{share:.0%} {bound}" for bound, share in by_bound if share >= _SMALL)
    whole, convolutions, rest = (
        answer[name] for name in ("whole_seconds", "seconds", "operation_seconds")
    )
    parts = f"{_seconds(convolutions)} of convolutions and {_seconds(rest)} of all else"
    about = {
        "range": f"{_seconds(least)} if all else is free, {_seconds(most)} if it runs op by op",
        "bound by": f"{bounds} (of the convolutions' time)",
        "left out": "; ".join(answer["left_out"]),
        "to change": "--accuracy fast, --machine trn3, `trnconv tune`; `trnconv compare` shows two",
    }
    return [
        f"The whole {answer['phase']}: {_seconds(whole)}, {parts}.",
        *(_latency_line(latency) for latency in answer["latencies"]),
        *(f"  {name:<11}{words}" for name, words in about.items()),
    ]


def _seconds(value: float) -> str:
    """Three digits: 4.448 s, 1.85 ms."""
    if value >= _SHORT or not value:
        return f"{value:.3f} s"
    return duration(value).replace("\u00a0", " ")


def _latency_line(latency: dict[str, Any]) -> str:
    cores = f"{latency['cores']} core{'s' if latency['cores'] > 1 else ''}"
    seconds = f"{latency['bound']} {_seconds(latency['seconds'])}".strip()
    return f"  {cores:<11}{seconds:<18}{latency['how']}"


def origin(call: dict[str, Any], words: str) -> str:
    """Where a plan was stored, put into these words; nothing if it was searched for."""
    stored = "tuned" if call["tuned"] else "shipped" if call["shipped"] else ""
    return words.format(stored) if stored else ""


def _origins(answer: dict[str, Any]) -> str:
    searched = answer["distinct"] - answer["tuned"] - answer["shipped"]
    shipped, tuned = answer["shipped"], answer["tuned"]
    return f"{shipped} came with the package, {tuned} tuned here, {searched} searched for"


def layer_sheet(answer: dict[str, Any]) -> Sheet:
    """Convolutions, those first that take longest."""
    return sheet(_LAYER_COLUMNS, [_layer_row(layer) for layer in answer["layers"]])


def _layer_row(layer: dict[str, Any]) -> tuple[Any, ...]:
    call = layer["call"]
    return (
        _modules(layer["modules"]),
        layer["convolution"],
        layer["input"],
        layer["calls"],
        call["ns"] / 1e6,
        layer["total_ns"] / 1e9,
        layer["share"],
        call["bound"],
        call["instructions"],
        f"{call['algorithm']}, {call['block']}{origin(call, ', {}')}",
    )


def _operations(answer: dict[str, Any]) -> Sheet:
    """What is no convolution, by kind."""
    rows = [
        (
            kind["kind"],
            kind["calls"],
            kind["moved_bytes"] / 1e9,
            kind["as_written_bytes"] / 1e9,
            kind["ns"] / 1e9,
            kind["ns"] / 1e9 / answer["whole_seconds"],
            kind["bound"],
            kind["price_of"],
        )
        for kind in answer["operations"]
    ]
    return sheet(_OPERATION_COLUMNS, rows)


def _modules(names: list[str]) -> str:
    """The first name without what all names of a model share, and how many more there are."""
    first = names[0].partition(".")[2] or names[0]
    more = f" +{len(names) - 1}" if len(names) > 1 else ""
    room = _MODULE - len(more)
    short = first if len(first) <= room else f"..{first[-(room - 2) :]}"
    return f"{short}{more}"


def _totals(answer: dict[str, Any]) -> list[tuple[str, str]]:
    limit = answer["instruction_limit"]
    graphs = len(answer["graphs"])
    longest = f"in the longest of {graphs} graphs" if graphs > 1 else "in one graph"
    used = f"{answer['instructions'] / 1e6:.2f} M {longest}, which may have {limit / 1e6:g} M"
    compiled = f"some {answer['compile_s'] / 60:.0f} min, {answer['regions']} hardware loops"
    shape = "x".join(map(str, answer["largest_shape"]))
    left = len(answer["convolutions_left_to_torch"])
    return [
        ("time", f"{answer['seconds']:.3f} s of convolutions, one after the other"),
        ("calls", f"{answer['calls']:,}, {answer['distinct']} different"),
        ("plans", _origins(answer)),
        ("work", f"{amount(answer['multiply_adds'])} multiply-adds, if done directly"),
        ("instructions", used if answer["fits_a_graph"] else f"{used}: split the graph"),
        ("compiling", f"{compiled} ({answer['compile_assumption']})"),
        ("HBM traffic", f"{amount(answer['convolution_bytes'], 'B')} of convolutions"),
        ("copies", f"{amount(answer['copied_bytes'], 'B')} of padding, caches and the like, above"),
        ("peak memory", f"{amount(answer['peak_bytes'], 'B')} of activations and caches"),
        ("largest", f"{amount(answer['largest_bytes'], 'B')}, a tensor of {shape}"),
        ("weights", amount(answer["weight_bytes"], "B")),
        ("modules", f"{answer['convolutions_patched']} on our kernels, {left} left to torch"),
    ]
