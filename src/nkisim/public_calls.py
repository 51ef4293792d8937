"""What users call: a wrong call is refused in words of NKI, where Python would say TypeError.

Public functions run behind `guarded`. A call that Python itself cannot make sense of, and one that
ends in a bare Python error inside of nkisim, raises NkiValidationError with the argument that is of
the wrong kind. So does a call that went well although an argument was of a wrong kind; that is
looked at once per function and combination of argument types, because every instruction passes.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from inspect import Parameter, Signature
from types import FunctionType, ModuleType
from typing import Any, Final

from nkisim.errors import ArgumentError, NkiValidationError, UnknownNameError
from nkisim.kinds import annotated_kinds, fits, in_words, remedy_for, value_in_words
from nkisim.source_lines import SourceLine, is_user_code, last_place

_PYTHONS: Final = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError)
_LEFT_OUT: Final = {
    "arange": "slice tensors: tensor[a:b], or tensor.ap([[step, count], ...])",
    "mgrid": "slice tensors: tensor[a:b, c:d], or tensor.ap([[step, count], ...])",
    "par_dim": "the first dimension is the partition dimension: write its size alone",
    "nc": "launch with kernel[2]",
    "spmd_dim": "launch with kernel[2]",
    "tensor_copy_dynamic_src": "nisa.tensor_copy of tensor.ap(..., scalar_offset=register)",
    "tensor_copy_dynamic_dst": "nisa.tensor_copy to tensor.ap(..., scalar_offset=register)",
    "mask": "slice the tensors to the part that is used",
    "T": "nisa.nc_transpose into a tile, or a view by tensor.permute(...)",
    "astype": "nisa.tensor_copy into a tile of that dtype",
    "to": "nisa.tensor_copy into a tile of that dtype",
}  # of earlier NKI, and of NumPy and torch


def guarded(
    function: Callable[..., Any],
    title: str,
    names: Mapping[str, Any],
    signature: Signature | None = None,
) -> Callable[..., Any]:
    """The function behind a check of its arguments; messages call it `title`.

    `names` are what annotations may mention beside the names of the function's own module.
    """
    asked = _Parameters(function, title, names, signature)
    known: set[Any] = set()

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            result = function(*args, **kwargs)
        except NkiValidationError:
            raise
        except _PYTHONS as error:
            if is_user_code(error.__traceback__):
                raise
            refusal, cause = asked.refusal(args, kwargs, error)
            raise refusal from cause
        key: Any = tuple(map(type, args))
        if kwargs:
            key = (key, tuple(kwargs), tuple(map(type, kwargs.values())))
        if key not in known:
            asked.require_kinds(args, kwargs)
            known.add(key)
        return result

    return call


class _Parameters:
    """The parameters of one function and their kinds, read when a call first asks for them."""

    def __init__(
        self,
        function: Callable[..., Any],
        title: str,
        names: Mapping[str, Any],
        signature: Signature | None,
    ) -> None:
        self._function = function
        self._title = title
        self._names = names
        self._signature = signature

    @functools.cached_property
    def signature(self) -> Signature:
        return self._signature or inspect.signature(self._function)

    @functools.cached_property
    def kinds(self) -> dict[str, Any]:
        own = getattr(inspect.unwrap(self._function), "__globals__", {})
        return annotated_kinds(self.signature, {**self._names, **own})

    def refusal(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
    ) -> tuple[ArgumentError, Exception | None]:
        """What a call that ended in a Python error raises, and its cause if that is not known."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as problem:
            return self._unbound(kwargs, problem), None
        wrong = self._wrong(bound.arguments)
        if wrong is not None:
            return wrong, None
        listed = ", ".join(f"{name}: {in_words(kind)}" for name, kind in self._checked())
        refusal = ArgumentError(
            f"{type(error).__name__}: {error}",
            instruction=self._title,
            limit=f"the function takes {listed or 'anything'}",
            remedy="look at the values; if they are right, nkisim is wrong: report the call",
        )
        return refusal, error

    def require_kinds(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Refuse arguments of a wrong kind that the function did not look at."""
        wrong = self._wrong(self.signature.bind(*args, **kwargs).arguments)
        if wrong is not None:
            raise wrong

    def _checked(self) -> Iterable[tuple[str, Any]]:
        return ((n, kind) for n, kind in self.kinds.items() if n != "self")

    def _wrong(self, arguments: Mapping[str, Any]) -> ArgumentError | None:
        for name, kind in self._checked():
            if name not in arguments:
                continue
            starred = self.signature.parameters[name].kind is Parameter.VAR_POSITIONAL
            for value in arguments[name] if starred else (arguments[name],):
                if not fits(value, kind):
                    return ArgumentError(
                        f"{name} is {value_in_words(value)}",
                        instruction=self._title,
                        limit=f"{name} is {in_words(kind)}",
                        remedy=remedy_for(value, kind),
                    )
        return None

    def _unbound(self, kwargs: dict[str, Any], problem: TypeError) -> ArgumentError:
        names = [name for name in self.signature.parameters if name != "self"]
        limit = f"its parameters are {', '.join(names)}" if names else "it has no parameters"
        unknown = [name for name in kwargs if name not in names]
        if unknown:
            what = f"a parameter {unknown[0]!r}, which {self._title} does not have"
            remedy = meant(unknown[0], names) or _LEFT_OUT.get(unknown[0]) or "leave it out"
        elif names[:1] == ["dst"] and "missing" in str(problem):
            what = str(problem)
            remedy = "an instruction returns no tensor: pass the tile it writes as dst, first"
        else:
            what = str(problem)
            remedy = f"pass {', '.join(names) or 'nothing'}"
        return ArgumentError(what, instruction=self._title, limit=limit, remedy=remedy)


def meant(word: str, names: Iterable[str]) -> str | None:
    """The question "did you mean ...?", if one of the names is like the word."""
    close = get_close_matches(word, list(names), n=2, cutoff=0.6)
    return f"did you mean {' or '.join(close)}?" if close else None


def open_namespace(module: ModuleType, prefix: str, names: Mapping[str, Any]) -> None:
    """Guard the public functions of a module, and answer for the names it does not have."""
    members = vars(module)
    for name in members["__all__"]:
        if isinstance(members[name], FunctionType):
            members[name] = guarded(members[name], f"{prefix}.{name}", names)
    members["__getattr__"] = functools.partial(_refuse_unknown, prefix, members)


def open_methods(owner: type, prefix: str, names: Mapping[str, Any]) -> None:
    """Guard the public methods of a class.

    It gets no `__getattr__`, which would slow down every attribute; `unknown_attribute` answers for
    those it does not have.
    """
    for name, member in list(vars(owner).items()):
        if isinstance(member, FunctionType) and not name.startswith("_"):
            setattr(owner, name, guarded(member, f"{prefix}.{name}", names))
    _prefixes[owner] = prefix


_prefixes: Final[dict[type, str]] = {}


def unknown_attribute(error: AttributeError) -> UnknownNameError | None:
    """What to raise for an attribute that an object of ours does not have; None for others'."""
    prefix = _prefixes.get(type(error.obj))
    if prefix is None or not error.name:
        return None
    place = last_place(error.__traceback__)
    return _unknown(prefix, [name for name in dir(error.obj) if name[0] != "_"], error.name, place)


def _refuse_unknown(prefix: str, members: Mapping[str, Any], name: str) -> Any:
    if name.startswith("_"):  # Python's own questions: copying, pickling, documentation
        raise AttributeError(f"{prefix} has no {name}")
    raise _unknown(prefix, [member for member in members["__all__"] if member[0] != "_"], name)


def _unknown(
    prefix: str, known: list[str], name: str, place: SourceLine | None = None
) -> UnknownNameError:
    if name in known:
        return UnknownNameError(
            f"{prefix}.{name} in NKI 0.6",
            limit="NKI has it from 0.7 on",
            remedy="nkisim.install(version='0.7')",
        )
    return UnknownNameError(
        f"NKI has no {prefix}.{name}",
        limit=f"{prefix} has {len(known)} public names",
        remedy=_LEFT_OUT.get(name) or meant(name, known) or "`python -m nkisim surface` lists them",
        place=place,
    )
