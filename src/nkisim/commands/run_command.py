"""`python -m nkisim run`: run a kernel on random or stored data, and say what came of it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nkisim.commands.argument_words import described
from nkisim.commands.kernel_call import KernelCall, add_kernel_options, kernel_asked, run_asked
from nkisim.running.host_arrays import Spec

if TYPE_CHECKING:
    from nkisim.commands.kernel_call import Commands
    from nkisim.running.kernel import Run


def add_parser(commands: Commands) -> None:
    """Add the command to those of `python -m nkisim`."""
    parser = commands.add_parser("run", help="run a kernel, and say what it returns and uses")
    add_kernel_options(parser)
    parser.add_argument("--seed", type=int, default=0, help="of random arrays (default 0)")
    parser.add_argument(
        "--shape-only", action="store_true", help="check shapes and places, compute nothing"
    )
    parser.add_argument(
        "--inspect",
        action="store_true",
        help="list reads before any write, stores that nothing reads, and the first NaN",
    )
    parser.add_argument("--save", type=Path, metavar="FILE.npz", help="keep what it returns")


def main(options: argparse.Namespace) -> int:
    """Run the kernel and print a summary; the exit code."""
    values = not options.shape_only and options.example is None
    call = kernel_asked(options, values=values, seed=options.seed)
    values = values and not any(isinstance(argument, Spec) for argument in call.arguments.values())
    result = run_asked(options, call, values=values, inspect_values=options.inspect)
    sys.stdout.writelines(f"{line}\n" for line in _summary(options, call, result))
    if options.save is not None and values:
        np.savez(options.save, *_returned(result.outputs))
        sys.stdout.write(f"saved    {options.save}\n")
    return 0


def _summary(options: argparse.Namespace, call: KernelCall, result: Run) -> Iterator[str]:
    machine = result.machine
    cores = len(result.traces)
    how = "shapes only" if result.outputs is None and result.output_shapes else "values"
    yield f"{call.name} on {machine.name}, {cores} core{'s' if cores > 1 else ''}, {how}"
    for name, value in call.arguments.items():
        random = isinstance(value, np.ndarray) and not _is_stored(options.arg, name)
        yield f"takes    {described(name, value)}{', random' if random else ''}"
    yield from _returned_lines(result)
    for core, (trace, memory) in enumerate(zip(result.traces, result.memories, strict=True)):
        prefix = f"core {core}   " if cores > 1 else "program  "
        count = f"{trace.static_count:,} instructions, {trace.executed_count:,} executed"
        sbuf, room = memory.sbuf_peak_bytes_per_partition, machine.sbuf_usable_bytes_per_partition
        banks = f"{memory.psum_peak_banks} of {machine.psum_banks} PSUM banks"
        yield f"{prefix}{count}; {sbuf:,} of {room:,} SBUF bytes per partition, {banks}"
    yield from _findings(result)


def _findings(result: Run) -> Iterator[str]:
    """Device rules that were broken, and what --inspect saw."""
    for rule in result.rules:
        yield f"rule     {rule}"
    if result.inspection is not None:
        for read in result.inspection.uninitialised:
            yield f"unset    {read}"
        for store in result.inspection.unread:
            yield f"unread   {store}"
        if result.inspection.not_finite is not None:
            yield f"first    {result.inspection.not_finite}"


def _is_stored(words: list[str], name: str) -> bool:
    return any(word.startswith(f"{name}=") and word.endswith(".npy") for word in words)


def _returned_lines(result: Run) -> Iterator[str]:
    arrays = _returned(result.outputs)
    for number, (shape, dtype) in enumerate(result.output_shapes):
        facts = f": {_range_of(arrays[number])}" if arrays else ""
        yield f"returns  {dtype} {list(shape)}{facts}"
    if not result.output_shapes:
        yield "returns  nothing"


def _returned(outputs: Any) -> list[np.ndarray[Any, Any]]:
    if outputs is None:
        return []
    return [
        np.asarray(output) for output in (outputs if isinstance(outputs, tuple) else (outputs,))
    ]


def _range_of(array: np.ndarray[Any, Any]) -> str:
    numbers = array.astype(np.float64)
    wrong = int(np.count_nonzero(~np.isfinite(numbers)))
    if wrong:
        return f"{wrong:,} of {numbers.size:,} values are NaN or infinite"
    low, high, middle = numbers.min(), numbers.max(), numbers.mean()
    return f"{low:.6g} to {high:.6g}, mean {middle:.6g}"
