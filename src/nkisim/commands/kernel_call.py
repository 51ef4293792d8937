"""What run, time and trace have in common: options that name a kernel, and running it."""

from __future__ import annotations

import argparse
import inspect
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nkisim.commands.argument_words import arguments_of
from nkisim.commands.kernel_files import load_kernel
from nkisim.commands.not_run import NotRunError, not_run
from nkisim.errors import NkiValidationError
from nkisim.machine import MACHINES, TRN2
from nkisim.public_calls import meant
from nkisim.running.api_version import DEFAULT, VERSIONS
from nkisim.running.kernel import Kernel, Run, run
from nkisim.source_lines import up_to_user

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 (no public name)

REFUSED: Final = 1  # the kernel broke a rule
NOT_RUN: Final = 2  # there was nothing to run; as argparse exits


class KernelCall(NamedTuple):
    """A kernel that was asked for, with its arguments."""

    name: str
    kernel: Callable[..., Any]
    arguments: dict[str, Any]


def add_kernel_options(parser: argparse.ArgumentParser) -> None:
    """FILE[:kernel] or --example, its arguments, and where it runs."""
    parser.add_argument(
        "kernel", nargs="?", metavar="FILE[:kernel]", help="a file of yours, and a kernel in it"
    )
    parser.add_argument("--example", metavar="NAME", help="of nkisim.examples, instead of a file")
    parser.add_argument(
        "--arg",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an argument of the kernel: x=4096x2048:float32 (an array), x=data.npy, eps=1e-6,"
        " dtype=nl.bfloat16; once for each",
    )
    parser.add_argument("--machine", default=TRN2.name, choices=sorted(MACHINES))
    parser.add_argument(
        "--lnc", type=int, choices=(1, 2), help="launch it on that many cores (default: one)"
    )
    parser.add_argument("--nki", choices=VERSIONS, default=DEFAULT, help="default: %(default)s")


def kernel_asked(options: argparse.Namespace, *, values: bool, seed: int = 0) -> KernelCall:
    """The kernel and the arguments that the options name."""
    if (options.kernel is None) == (options.example is None):
        not_run(
            f"{options.command} without a kernel" if options.kernel is None else "two kernels",
            "one of FILE[:kernel] and --example NAME",
            f"python -m nkisim {options.command} FILE --arg x=128x512:float32",
        )
    if options.example is not None:
        return _example(options.example)
    name, kernel = load_kernel(options.kernel, options.nki)
    inside = kernel.func if isinstance(kernel, Kernel) else kernel
    return KernelCall(name, kernel, arguments_of(inside, options.arg, values=values, seed=seed))


def _example(name: str) -> KernelCall:
    # Importing the examples stands in for a real nki for a moment; other commands need not see it.
    from nkisim.examples import EXAMPLES  # noqa: PLC0415

    if name not in EXAMPLES:
        known = ", ".join(sorted(EXAMPLES))
        not_run(f"unknown example {name!r}", f"there are {known}", meant(name, EXAMPLES) or known)
    example = EXAMPLES[name]
    names = inspect.signature(example.kernel).parameters
    return KernelCall(name, example.kernel, dict(zip(names, example.arguments, strict=True)))


def run_asked(
    options: argparse.Namespace, call: KernelCall, *, values: bool, inspect_values: bool = False
) -> Run:
    """Run it where the options say."""
    kernel = call.kernel if isinstance(call.kernel, Kernel) else Kernel(call.kernel)
    if options.lnc is not None:
        kernel = kernel[options.lnc]
    how = {"machine": options.machine, "lnc": options.lnc or 1, "values": values}
    return run(kernel, **how, inspect=inspect_values, **call.arguments)


def reporting(command: Callable[[argparse.Namespace], int], options: argparse.Namespace) -> int:
    """Run a command; what goes wrong is said on stderr, without frames of nkisim's."""
    try:
        return command(options)
    except NotRunError as problem:
        sys.stderr.write(f"{options.command}: {problem}\n")
        return NOT_RUN
    except NkiValidationError as error:
        sys.stderr.write(f"{options.command}: {error}\n")
        return REFUSED
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 (the user's file raised it: show where)
        traceback.print_exception(error.with_traceback(up_to_user(error.__traceback__)))
        return NOT_RUN
