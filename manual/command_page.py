"""docs/reference/command-line.md from the functions behind the commands, so it cannot go stale."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from typer.models import ArgumentInfo

from manual.tables import table
from trnconv.cli import app

HEAD = """# Command line

`trnconv` and `python -m trnconv` are the same program. This page is generated from its source by
`python -m manual`; do not edit it. All device times that commands print are modelled.

Exit codes: 0 success, 1 a check failed or a file could not be used, 2 invalid request. The reason
and a remedy are printed to stderr.

"""
NKISIM = """## python -m nkisim

The simulator has its own command line:

| command | what it does |
| --- | --- |
| `python -m nkisim surface` | list NKI's public names (`--nki 0.6` or 0.7) and which are missing |
| `python -m nkisim run FILE[:kernel] --arg NAME=VALUE` | run a kernel on random or stored data |
| `python -m nkisim time FILE[:kernel] --arg NAME=VALUE` | show its modelled timeline |
| `python -m nkisim trace FILE[:kernel] --arg NAME=VALUE` | show its instructions |
| `python -m nkisim lint PATH` | report what NKI's compiler would not accept in a file or folder |
| `python -m nkisim bench` | measure the speed of nkisim on this computer |

A kernel is a function decorated with `nki.jit`; after `FILE:` any function can be named.
`--example NAME` uses one of nkisim's own examples instead of a file. VALUE is
`4096x2048:float32` for an array, `FILE.npy`, `nl.bfloat16`, or a Python number, string, tuple or
None. Exit codes: 0 success, 1 the kernel violates a rule (the message is on stderr), 2 nothing to
run.

From a checkout there are also `python -m benchmarks` (kernels beside baselines),
`python -m validation` ([the model against published times](../validation.md)) and
`python -m manual` (pages like this one).
"""
COLUMNS = ("argument or option", "type", "default", "description")
WORDS = {str: "text", int: "whole number", float: "number", bool: ""}


class Option(NamedTuple):
    """One parameter of a command, as a user writes it."""

    names: tuple[str, ...]  # --flags; an argument has its name in capitals
    takes: str
    default: str
    says: str


class Command(NamedTuple):
    """One command."""

    name: str
    says: str
    options: tuple[Option, ...]


def render() -> str:
    """The whole page."""
    found = list(commands())
    linked = [
        (f"[`trnconv {command.name}`](#trnconv-{command.name})", _first(command.says))
        for command in found
    ]
    overview = table(("command", "what it does"), linked)
    return HEAD + overview + "\n" + "".join(map(_section, found)) + NKISIM


def commands() -> Iterator[Command]:
    """The commands in the order of the help."""
    for registered in app.registered_commands:
        function = registered.callback
        assert function is not None, "a command is a function"
        name = registered.name or function.__name__.replace("_", "-")
        says = registered.help or inspect.getdoc(function) or ""
        yield Command(name, says, tuple(_options(function)))


def _first(says: str) -> str:
    return " ".join(says.split("\n\n", maxsplit=1)[0].split())


def _section(command: Command) -> str:
    rows = [
        (", ".join(f"`{name}`" for name in option.names), option.takes, option.default, option.says)
        for option in command.options
    ]
    return f"## trnconv {command.name}\n\n{command.says}\n\n{table(COLUMNS, rows)}\n"


def _options(function: Callable[..., Any]) -> Iterator[Option]:
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        if get_origin(parameter.annotation) is not Annotated:
            continue  # Typer's own context
        kind, info = get_args(parameter.annotation)[:2]
        if info.hidden:
            continue
        yield Option(_names(parameter, info), _takes(kind, info), _default(parameter), _says(info))


def _names(parameter: inspect.Parameter, info: Any) -> tuple[str, ...]:
    if isinstance(info, ArgumentInfo):
        return (info.metavar or parameter.name.upper(),)
    own = f"--{parameter.name.replace('_', '-')}"
    return tuple(name for given in info.param_decls or (own,) for name in given.split("/"))


def _takes(kind: Any, info: Any) -> str:
    if get_origin(kind) in {Union, types.UnionType}:
        kind = next(alternative for alternative in get_args(kind) if alternative is not type(None))
    several = get_origin(kind) is list
    one = get_args(kind)[0] if several else kind
    word = info.metavar or WORDS.get(one, getattr(one, "__name__", str(one)).lower())
    if hasattr(one, "__members__"):
        word = ", ".join(str(member.value) for member in one)
    return f"{word}, repeatable" if several else word


def _default(parameter: inspect.Parameter) -> str:
    given = parameter.default
    if given is parameter.empty:
        return "required"
    if given is None or given is False or given == "":
        return ""
    return str(getattr(given, "value", given))


def _says(info: Any) -> str:
    return " ".join((info.help or "").split())
