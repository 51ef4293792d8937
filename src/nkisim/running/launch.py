"""Launch: one call of a kernel, from the caller's arrays to the tensors it returns."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from nkisim.errors import NkiValidationError, refuse
from nkisim.memory.hbm_room import HbmRoom
from nkisim.memory.layout import MemoryRegion
from nkisim.memory.storage import Storage
from nkisim.numerics import dtypes
from nkisim.running.argument_names import positional_names
from nkisim.running.cores import CorePair
from nkisim.running.host_arrays import Spec, is_array, spec_of, to_numpy, write_back
from nkisim.running.session import Session, Settings, activated
from nkisim.tensors.registers import NKIObject
from nkisim.tensors.tensor import NkiTensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from nkisim.running.inspection import Inspector


@dataclass(frozen=True)
class _Argument:
    """One array argument: the caller's object and the HBM storage it became."""

    value: Any
    storage: Storage


class Launched(Protocol):
    """What a launch needs of a kernel."""

    @property
    def title(self) -> str:
        """How messages name it."""

    @property
    def func(self) -> Callable[..., Any]:
        """What the author wrote."""


class Launch:
    """One call of a kernel: its arguments as HBM tensors, shared by the cores."""

    def __init__(self, kernel: Launched, settings: Settings, pair: CorePair | None) -> None:
        self.kernel = kernel
        self.settings = settings
        self.hbm = HbmRoom(settings.machine)
        self.inspector: Inspector | None = None
        shared = pair is not None
        self.region = MemoryRegion.shared_hbm if shared else MemoryRegion.private_hbm
        self.arguments: list[_Argument] = []

    def bind(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Arguments as the kernel sees them: arrays become HBM tensors."""
        names = positional_names(self.kernel.title, self.kernel.func, args, kwargs)
        positional = [self._bind_one(n, value) for n, value in zip(names, args, strict=True)]
        return positional, {name: self._bind_one(name, value) for name, value in kwargs.items()}

    def _bind_one(self, name: str, value: Any) -> Any:
        self._require_kind(name, value)
        if isinstance(value, tuple):
            return tuple(self._bind_one(f"{name}_{i}", item) for i, item in enumerate(value))
        if not is_array(value):
            return value
        spec = spec_of(value)
        scratch = Session(replace(self.settings, values=False))
        scratch.memory.hbm = self.hbm
        storage = scratch.allocate(spec.shape, spec.dtype, self.region, name, None)
        storage.precise = self.settings.precise
        storage.given = True
        if self.settings.values:
            self._adopt(storage, name, value)
        self.arguments.append(_Argument(value, storage))
        return storage

    def _require_kind(self, name: str, value: Any) -> None:
        """Refuse what NKI does not pass into kernels."""
        title = self.kernel.title
        if isinstance(value, list):
            refuse(
                title,
                f"argument {name} is a list",
                "kernels take tuples, not lists",
                "pass a tuple",
            )
        numpy_type = isinstance(value, type) and issubclass(value, np.generic)
        if numpy_type or isinstance(value, np.dtype):
            refuse(
                title,
                f"argument {name} is the NumPy type {value}",
                "dtypes are those of nki.language",
                "pass nl.float32, nl.bfloat16 ...",
            )
        wide = isinstance(value, int) and not -(2**31) <= value < 2**31
        if wide and self.settings.nki == "0.6":  # 0.7 hands Python's integers on as they are
            refuse(title, f"argument {name} is {value}", "integers have 32 bits", "split it")

    def _adopt(self, storage: Storage, name: str, value: Any) -> None:
        if isinstance(value, Spec):
            refuse(
                self.kernel.title,
                f"argument {name} is a Spec",
                "a run with values needs data",
                "pass an array, or run with values=False",
            )
        array = to_numpy(value)
        _, values = dtypes.from_host(array)
        flat = np.ascontiguousarray(values).reshape(-1)
        storage.adopt(flat.copy() if np.may_share_memory(flat, array) else flat)

    def execute(self, session: Session, bound: tuple[list[Any], dict[str, Any]]) -> Any:
        """Run the function on one core."""
        copied: dict[int, Any] = {}
        args = [_as_argument(value, copied) for value in bound[0]]
        kwargs = {name: _as_argument(value, copied) for name, value in bound[1].items()}
        session.memory.hbm = self.hbm
        session.inspector = self.inspector
        with activated(session):
            result = self.kernel.func(*args, **kwargs)
        if self.inspector is not None:
            self.inspector.look_at_results(session.core)
        session.require_ended()
        return result

    def copy_back(self) -> None:
        """Give the caller's arrays the values the kernel wrote into its arguments."""
        for argument in self.arguments:
            if argument.storage.written and self.settings.values:
                write_back(argument.value, argument.storage.host_array())

    def returned(self, result: Any) -> list[NkiTensor]:
        """The tensors a kernel returned; they are in shared HBM, or are arguments."""
        items = result if isinstance(result, (tuple, list)) else [] if result is None else [result]
        own = [argument.storage for argument in self.arguments]
        for item in items:
            tensor = isinstance(item, NkiTensor)
            if not tensor or (
                item.buffer is not MemoryRegion.shared_hbm and item.storage not in own
            ):
                where = f"in {item.buffer.value}" if tensor else f"of type {type(item).__name__}"
                raise NkiValidationError(
                    f"a returned value is {where}",
                    instruction=self.kernel.title,
                    limit="kernels return nl.shared_hbm tensors",
                    remedy="copy the result to a tensor with buffer=nl.shared_hbm",
                )
        return list(items)

    def require_one_result(self, returned: list[list[NkiTensor]]) -> None:
        """Both cores return views of the same tensors: they are one kernel."""
        parts = [[(t.storage, t.layout, t.offset) for t in result] for result in returned]
        if parts[0] != parts[-1]:
            refuse(
                self.kernel.title,
                f"core 0 returns {returned[0]}, core 1 returns {returned[1]}",
                "both cores return the same shared tensors",
                "give both cores the same control flow",
            )

    @property
    def example(self) -> Any:
        """An array of the caller's, which says what kind results have; None if there is none."""
        return self.arguments[0].value if self.arguments else None


def _as_argument(value: Any, copied: dict[int, Any]) -> Any:
    """What a core sees of an argument: tensors, and objects of its own, copied as NKI does."""
    if isinstance(value, tuple):
        return tuple([_as_argument(item, copied) for item in value])
    if isinstance(value, Storage):
        return NkiTensor(value.shape, value.dtype, value, value.allocation.region)
    return copy.deepcopy(value, copied) if isinstance(value, NKIObject) else value
