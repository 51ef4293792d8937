"""Where the readers of a stream begin their next pass, in memory that a DataLoader's workers share.

A DataLoader copies its dataset into workers, and tells neither the copies nor the original when a
pass over it begins. Each worker notes it here, under its own number, when it is asked to iterate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trnconv.errors import TrnconvError

_WORKERS = 1024  # of a DataLoader, at most
_EPOCH, _POSITION, _PASSES = range(3)


@dataclass(frozen=True)
class Pass:
    """A pass over a stream: its number, and from where it goes."""

    number: int
    epoch: int
    position: int  # in the epoch's sequence of batches


class StreamPlaces:
    """A place for each worker; workers of one DataLoader always begin at the same."""

    def __init__(self) -> None:
        import torch

        self._table: Any = torch.zeros(3, _WORKERS, dtype=torch.int64)
        self._share()

    @property
    def passes(self) -> int:
        """How many have begun."""
        return int(self._table[_PASSES].max())

    @property
    def next_place(self) -> tuple[int, int]:
        """The epoch of the next pass, and the position in it."""
        return int(self._table[_EPOCH, 0]), int(self._table[_POSITION, 0])

    def put(self, epoch: int, position: int) -> None:
        """Have the next pass of every worker begin there."""
        self._table[_EPOCH] = epoch
        self._table[_POSITION] = position
        self._table[_PASSES] = self.passes

    def begin(self, worker: int | None, place: tuple[int, int] | None = None) -> Pass:
        """A pass of a worker, or of the process without workers; the next is of the epoch after it.

        With `place`, it begins there instead of where it would.
        """
        if worker is not None and worker >= _WORKERS:
            raise TrnconvError(f"worker {worker} of a DataLoader: at most {_WORKERS} workers.")
        mine = slice(None) if worker is None else worker
        number = self.passes + 1 if worker is None else int(self._table[_PASSES, worker]) + 1
        epoch, position = place or (int(value) for value in self._table[:_PASSES, worker or 0])
        self._table[_EPOCH, mine] = epoch + 1
        self._table[_POSITION, mine] = 0
        self._table[_PASSES, mine] = number
        return Pass(number, epoch, position)

    def check_is_last(self, running: Pass) -> None:
        """A TrnconvError if somebody has begun a pass after this one, which then is of no use."""
        if self.passes > running.number:
            raise TrnconvError(
                "another pass over this stream has begun, or its DataLoader has other workers than"
                " the one before. Read it by one iterator at a time; before another number of"
                " workers reads it, call its set_epoch or load_state_dict."
            )

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy that was made for a worker shares memory; others have their own to share."""
        self.__dict__.update(state)
        self._share()

    def _share(self) -> None:
        if not self._table.is_shared():
            self._table.share_memory_()
