"""Plans as tables and sentences."""

from __future__ import annotations

from typing import Any

from trnconv.ask.cores import cores_in_words
from trnconv.cli.output import amount, console, table
from trnconv.report.numbers import measured_in

_WIDE = 200  # characters of the table of a model, at most
_MODULE = 30


def show_layer(answer: dict[str, Any]) -> None:
    """One layer."""
    screen = console()
    screen.print(answer["layer"]["in_words"], markup=False)
    screen.print(label(answer, f"{answer['dtype']}, accuracy {answer['accuracy']}"))
    screen.print()
    peak, usable = answer["sbuf_bytes_per_partition"], answer["sbuf_usable_bytes_per_partition"]
    for name, words in (
        ("time", f"{answer['ns'] / 1e3:,.1f} us by the planner's closed form"),
        ("bound", f"by {answer['bound']}"),
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
        f" {cores_in_words(answer['cores'])}, {more}; {measured_in(answer['machine'])}."
    )


def show_model(answer: dict[str, Any]) -> None:
    """A model: its layers, the heaviest first, and totals."""
    screen = console(_WIDE)
    size = answer["size"]
    screen.print(
        f"{answer['model']['title']}, {answer['phase']} of {size['height']}x{size['width']},"
        f" {size['frames']} {'frame' if size['frames'] == 1 else 'frames'}, batch 1",
        markup=False,
    )
    screen.print(label(answer, f"bfloat16, accuracy {answer['accuracy']}"))
    screen.print()
    screen.print(
        f"The whole {answer['phase']}: {answer['whole_seconds']:.3f} s, {answer['seconds']:.3f} of"
        f" convolutions and {answer['operation_seconds']:.3f} of all else.",
        markup=False,
    )
    screen.print()
    screen.print(_layers(answer["layers"]))
    hidden = answer["distinct"] - len(answer["layers"])
    if hidden:
        screen.print(f"and {hidden} more convolutions: --top {answer['distinct']}, or --json")
    screen.print()
    screen.print(_operations(answer))
    screen.print(f"All else is {answer['operations_by']}.")
    screen.print()
    for name, words in _totals(answer):
        screen.print(f"{name:<14}{words}", markup=False)
    screen.print()
    screen.print(f"Left out: {'; '.join(answer['left_out'])}.")


def _layers(layers: list[dict[str, Any]]) -> Any:
    numbers = ("calls", "ms a call", "s", "of all")
    shown = table("", "module", "channels, taps", "input", *numbers, "bound", "instr.", "plan")
    for name in ("channels, taps", "plan"):
        next(column for column in shown.columns if column.header == name).justify = "left"
    for layer in layers:
        call = layer["call"]
        spent = (
            f"{call['ns'] / 1e6:.3f}",
            f"{layer['total_ns'] / 1e9:.3f}",
            f"{layer['share']:.1%}",
        )
        words = f"{call['algorithm']}, {call['block']}{origin(call, ', {}')}"
        shown.add_row(
            _modules(layer["modules"]),
            layer["convolution"],
            layer["input"],
            str(layer["calls"]),
            *spent,
            call["bound"],
            f"{call['instructions']}",
            words,
        )
    return shown


def origin(call: dict[str, Any], words: str) -> str:
    """Where a plan was stored, put into these words; nothing if it was searched for."""
    stored = "tuned" if call["tuned"] else "shipped" if call["shipped"] else ""
    return words.format(stored) if stored else ""


def _origins(answer: dict[str, Any]) -> str:
    searched = answer["distinct"] - answer["tuned"] - answer["shipped"]
    shipped, tuned = answer["shipped"], answer["tuned"]
    return f"{shipped} came with the package, {tuned} tuned here, {searched} searched for"


def _operations(answer: dict[str, Any]) -> Any:
    """What is no convolution, by kind."""
    numbers = ("calls", "GB", "GB by torch's operators", "s", "of all")
    shown = table("", "besides convolutions", *numbers, "bound", "priced as")
    for kind in answer["operations"]:
        spent = kind["ns"] / 1e9
        shown.add_row(
            kind["kind"],
            str(kind["calls"]),
            f"{kind['moved_bytes'] / 1e9:.2f}",
            f"{kind['as_written_bytes'] / 1e9:.2f}",
            f"{spent:.3f}",
            f"{spent / answer['whole_seconds']:.1%}",
            kind["bound"],
            kind["price_of"],
        )
    return shown


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
    kept = len(answer["convolutions_kept"])
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
        ("modules", f"{answer['convolutions_taken']} on our kernels, {kept} kept by torch"),
    ]
