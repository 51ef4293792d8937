"""Arguments of a kernel as words of a command line: `--arg x=4096x2048:float32 --arg eps=1e-6`."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np

import nkisim.language as nl
from nkisim.commands.not_run import not_run
from nkisim.errors import NkiValidationError, UnknownNameError
from nkisim.numerics import dtypes
from nkisim.public_calls import meant
from nkisim.running.host_arrays import Spec

_ARRAY: Final = re.compile(r"(\d+(?:x\d+)*):(\w+)")
_FORMS: Final = (
    "SIZExSIZE:dtype for an array, FILE.npy, nl.NAME, or a Python number, string, tuple or None"
)
_INTEGERS_BELOW: Final = 8  # of arrays of integers: small, so that sums stay exact


def arguments_of(
    kernel: Callable[..., Any], words: Iterable[str], *, values: bool, seed: int
) -> dict[str, Any]:
    """What to call a kernel with, by parameter; arrays are random, or shapes without `values`."""
    parameters = inspect.signature(kernel).parameters
    rng = np.random.default_rng(seed)
    found: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            not_run(f"--arg {word}", f"NAME=VALUE; a value is {_FORMS}", "write NAME=VALUE")
        if name not in parameters:
            known = ", ".join(parameters) or "none"
            remedy = meant(name, parameters) or "leave it out"
            not_run(f"--arg {word}", f"the kernel's parameters are {known}", remedy)
        found[name] = _value(word, text, rng, values=values)
    missing = [
        name for name, parameter in parameters.items() if parameter.default is parameter.empty
    ]
    missing = [name for name in missing if name not in found]
    if missing:
        not_run(
            f"no value for {', '.join(missing)}",
            f"the kernel takes {', '.join(map(str, parameters.values()))}",
            f"--arg {missing[0]}=VALUE: {_FORMS}",
        )
    return found


def _value(word: str, text: str, rng: np.random.Generator, *, values: bool) -> Any:
    array = _ARRAY.fullmatch(text)
    if array:
        shape = tuple(int(size) for size in array[1].split("x"))
        spec = _spec(word, shape, array[2])
        return _random(spec, rng) if values else spec
    if text.endswith(".npy"):
        return _stored(word, Path(text), values=values)
    if text.startswith("nl."):
        try:
            return getattr(nl, text.removeprefix("nl."))
        except UnknownNameError as unknown:
            not_run(f"--arg {word}", unknown.what, unknown.remedy or _FORMS)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        not_run(f"--arg {word}", f"a value is {_FORMS}", "quote strings: NAME=\"'text'\"")


def _spec(word: str, shape: tuple[int, ...], dtype: str) -> Spec:
    try:
        return Spec(shape, dtype)
    except NkiValidationError as unknown:
        not_run(f"--arg {word}", unknown.limit or "", meant(dtype, dtypes.ALL) or "use one of them")


def _stored(word: str, file: Path, *, values: bool) -> Any:
    if not file.is_file():
        not_run(f"--arg {word}", "the file is not there", "check the path")
    array = np.load(file)
    return array if values else Spec(array.shape, dtypes.canonical(array.dtype))


def _random(spec: Spec, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Normal numbers for floats, small ones for integers."""
    if dtypes.is_float(spec.dtype):
        numbers = rng.standard_normal(spec.shape, np.float32)
    else:
        below = 2 if spec.dtype == "bool" else _INTEGERS_BELOW
        numbers = rng.integers(0, below, spec.shape).astype(np.float32)
    return dtypes.to_host(dtypes.from_float32(numbers, spec.dtype), spec.dtype)


def described(name: str, value: Any) -> str:
    """An argument in a line: "x = float32 [4096, 2048]"."""
    if isinstance(value, np.ndarray):
        value = Spec(value.shape, dtypes.canonical(value.dtype))
    if isinstance(value, Spec):
        return f"{name} = {value.dtype} {list(value.shape)}"
    return f"{name} = {value!r}"
