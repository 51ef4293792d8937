"""Two cores of an LNC2 launch: one runs at a time, and they meet where the kernel says so.

Execution is deterministic: core 0 runs until it waits for core 1 or ends, then core 1, and so on.
"""

from __future__ import annotations

import contextvars
import threading
from typing import TYPE_CHECKING, Any

from nkisim.errors import NkiValidationError
from nkisim.memory.layout import MemoryRegion
from nkisim.numerics.dtypes import canonical
from nkisim.running.access_log import AccessLog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nkisim.memory.placement import Memory
    from nkisim.memory.storage import Storage

_CORES = 2


class _OtherCoreFailed(BaseException):
    """Ends the program of a core whose partner has raised; never seen by users."""


class SharedTensors:
    """shared_hbm tensors of a launch: the first core to ask creates, the second attaches."""

    def __init__(self) -> None:
        self._storages: dict[str, Storage] = {}
        self._asked: set[tuple[str, Memory]] = set()

    def attach(self, key: str, memory: Memory, shape: Sequence[int], dtype: str) -> Storage:
        """The storage both cores mean by `key`."""
        self._require_new(key, memory)
        known = self._storages.get(key)
        if known is None:
            known = memory.allocate(shape, dtype, MemoryRegion.shared_hbm, key)
            self._storages[key] = known
        if known.shape != tuple(shape) or known.dtype != canonical(dtype):
            raise NkiValidationError(
                f"shared tensor {key!r} is {known.dtype} {known.shape} on one core and"
                f" {dtype} {tuple(shape)} on the other",
                instruction="nl.ndarray",
                limit="both cores allocate the same shared_hbm tensors",
                remedy="allocate in the same order and shape on both cores, or name the tensors",
            )
        return known

    def _require_new(self, key: str, memory: Memory) -> None:
        """A core names a tensor once; iterations of a loop mean the same tensor."""
        if (key, memory) in self._asked and not memory.replaying:
            raise NkiValidationError(
                f"second tensor named {key!r}",
                instruction="nl.ndarray",
                limit="tensor names are unique within a kernel",
                remedy="leave the name out, or number it",
            )
        self._asked.add((key, memory))


class CorePair:
    """The meeting place of two cores, and the log of what they did."""

    def __init__(self) -> None:
        self._turn = 0
        self._changed = threading.Condition()
        self._waiting: list[tuple[str, Any] | None] = [None] * _CORES
        self._answers: list[Any] = [None] * _CORES
        self._finished = [False] * _CORES
        self._errors: list[BaseException | None] = [None] * _CORES
        self.meetings = 0  # that are over; the number of the next one
        self.log = AccessLog()
        self.shared = SharedTensors()

    def run(self, programs: list[Callable[[], Any]]) -> list[Any]:
        """Run one program per core to its end; the first error of any core is raised."""
        results: list[Any] = [None] * _CORES
        threads = [
            threading.Thread(
                target=contextvars.copy_context().run, args=(self._drive, core, program, results)
            )
            for core, program in enumerate(programs)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for error in self._errors:
            if error is not None:
                raise error
        return results

    def meet(self, core: int, what: str, message: Any) -> Any:
        """Wait for the other core at the meeting called `what`; returns its message."""
        other = 1 - core
        self.log.meet(core, self.meetings)
        arrived = self._waiting[other]
        if arrived is not None:
            if arrived[0] != what:
                raise NkiValidationError(
                    f"core {core} waits in {what} while core {other} waits in {arrived[0]}",
                    limit="both cores meet in the same instruction",
                    remedy="give both cores the same control flow",
                )
            self.meetings += 1
            self._waiting[other] = None
            self._answers[other] = message
            return arrived[1]
        if self._finished[other]:
            raise NkiValidationError(
                f"core {core} waits in {what}, and core {other} has ended",
                limit="both cores take part in every barrier and sendrecv",
                remedy="give both cores the same control flow",
            )
        self._waiting[core] = (what, message)
        self._pass_turn(core)
        return self._answers[core]

    def _drive(self, core: int, program: Callable[[], Any], results: list[Any]) -> None:
        self._await_turn(core)
        try:
            if not any(self._errors):
                results[core] = program()
                self._refuse_stranded(core)
        except _OtherCoreFailed:
            pass
        except BaseException as error:  # noqa: BLE001 (raised again by run, on the caller's thread)
            self._errors[core] = error
        finally:
            self._finished[core] = True
            with self._changed:
                self._turn = 1 - core
                self._changed.notify_all()

    def _refuse_stranded(self, core: int) -> None:
        stranded = self._waiting[1 - core]
        if stranded is not None:
            raise NkiValidationError(
                f"core {1 - core} waits in {stranded[0]}, and core {core} has ended",
                limit="both cores take part in every barrier and sendrecv",
                remedy="give both cores the same control flow",
            )

    def _pass_turn(self, core: int) -> None:
        with self._changed:
            self._turn = 1 - core
            self._changed.notify_all()
        self._await_turn(core)
        if self._errors[1 - core] is not None:
            raise _OtherCoreFailed

    def _await_turn(self, core: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._turn == core or self._finished[1 - core])
