"""Latents one after the other, for one of many ranks, from wherever the last run stopped.

An epoch is a sequence of batches, the same for everybody (`EpochOrder`). Ranks take turns, and so
do the workers of a rank's DataLoader, which gives what they read in turn: ranks together go through
the sequence whatever the number of workers is, so a number says where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count, islice
from typing import Any, Protocol

from trnconv.corpus.batches.epoch_order import EpochOrder, Row, RowSource
from trnconv.corpus.batches.stream_places import Pass, StreamPlaces
from trnconv.errors import TrnconvError

_Base: Any = object
with suppress(ImportError):  # the module can be read without torch, not used
    from torch.utils.data import IterableDataset, default_collate, get_worker_info

    _Base = IterableDataset


class LatentSource(RowSource, Protocol):
    """A manifest, and what reads its latents."""

    bucket: str | None

    @property
    def buckets(self) -> Mapping[str, int]:
        """How many latents each bucket has."""

    def items(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """Latents, with what is known of them."""


class LatentStream(_Base):  # type: ignore[misc]
    """An IterableDataset for torch's DataLoader and torchdata's StatefulDataLoader.

    Every pass is an epoch of its own order, also when the one before was given up. What it gives
    has the key "state": the state of the stream after it, for `load_state_dict`, on any rank, with
    any number of ranks and workers. With `drop_last`, incomplete batches and the batches that are
    too few for all ranks are left out, so that ranks get equal numbers; without, they may differ by
    one.
    """

    def __init__(
        self, latents: LatentSource, order: EpochOrder, *, rank: int, world: int, drop_last: bool
    ) -> None:
        if not 0 <= rank < world:
            raise TrnconvError(f"rank {rank} of {world}: a rank is from 0 to {world - 1}.")
        self._latents, self._order = latents, order
        self._rank, self._world, self._drop_last = rank, world, drop_last
        buckets = [latents.bucket] if latents.bucket else list(latents.buckets)
        sizes = [latents.buckets[bucket] for bucket in buckets]
        self._batches = order.count(sizes, drop_last=drop_last)
        self._sequence = f"{order} bucket={latents.bucket} latents={sum(sizes)}"
        self._places = StreamPlaces()
        self._known = 0  # passes that have begun here, in the process that has no workers
        self._running: tuple[int, int] | None = None  # the epoch, and the number of the next batch
        self._resumed: tuple[int, int] | None = None  # the same, of a worker

    def __len__(self) -> int:
        """Batches of this rank in a whole epoch."""
        if self._drop_last:
            return self._batches // self._world
        return max(0, -(-(self._batches - self._rank) // self._world))

    def set_epoch(self, epoch: int) -> None:
        """Have the next pass be of this epoch; from its start, unless a state of it was loaded."""
        if epoch < 0:
            raise TrnconvError(f"epoch {epoch}: 0 or more.")
        waiting, position = self._places.next_place
        self._put(epoch, position if waiting == epoch else 0)

    def state_dict(self) -> dict[str, Any]:
        """Where this process is, after what it was given last.

        A TrnconvError if the workers of a DataLoader read the stream, of which only they know.
        """
        info = get_worker_info()
        if info is not None:
            return self._worker_state(info)
        if self._places.passes > self._known:
            raise TrnconvError(
                "this stream is read by the workers of a DataLoader, which read ahead: it does not"
                ' know what they have given. Save batch["state"] of the last batch instead, or use'
                " torchdata's StatefulDataLoader and its state_dict()."
            )
        if self._running is None:
            return self._state(*self._places.next_place)
        epoch, number = self._running
        return self._state(epoch, number - self._rank)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have the next pass go on from there. What was given is not read again."""
        info = get_worker_info()
        expected = self._state(0, 0) if info is None else self._worker_state(info)
        if not _is_like(state, expected):
            raise TrnconvError(
                f"this is no state of a stream, which has {', '.join(expected)}. If a DataLoader"
                " made batches of the stream, have the stream make them (`batch`) and give the"
                " DataLoader batch_size=None. A state of StatefulDataLoader is for its own"
                " load_state_dict."
            )
        epoch, position = state["epoch"], state["position"]
        differing = {
            name for name in {"sequence", "worker"} & set(state) if state[name] != expected[name]
        }
        if differing and (position or info is not None):
            raise _of_another(state, expected, differing)
        if info is None:
            self._put(epoch, position)
        else:
            self._resumed = epoch, position

    def __iter__(self) -> Iterator[dict[str, Any]]:
        info = get_worker_info()
        if info is None:
            running = self._places.begin(None)
            self._known = running.number
            first, stride = running.position + self._rank, self._world
        else:
            running = self._places.begin(info.id, self._resumed)
            first, stride = running.position, info.num_workers * self._world
            if self._resumed is None:
                first += info.id * self._world + self._rank
        self._resumed = None
        self._running = running.epoch, first
        return self._pass(running, first, stride)

    def _pass(self, running: Pass, first: int, stride: int) -> Iterator[dict[str, Any]]:
        batches = self._order.batches(self._latents, running.epoch)
        for number, rows in zip(
            count(first, stride), islice(batches, first, self._end(first), stride), strict=False
        ):
            self._places.check_is_last(running)
            items = self._latents.items(rows)
            batch = items[0] if self._order.batch is None else default_collate(items)
            batch["state"] = self._state(running.epoch, number - self._rank + self._world)
            self._running = running.epoch, number + stride
            yield batch

    def _end(self, first: int) -> int:
        """The first batch of an epoch that is nobody's."""
        left_over = (self._batches - (first - self._rank)) % self._world
        return self._batches - left_over if self._drop_last else self._batches

    def _put(self, epoch: int, position: int) -> None:
        self._places.put(epoch, position)
        self._known, self._running = self._places.passes, None

    def _state(self, epoch: int, position: int) -> dict[str, Any]:
        return {"epoch": epoch, "position": position, "sequence": self._sequence}

    def _worker_state(self, info: Any) -> dict[str, Any]:
        """The state of a worker, in which StatefulDataLoader keeps it."""
        epoch, number = self._running or (0, 0)
        place = f"worker {info.id} of {info.num_workers}, rank {self._rank} of {self._world}"
        return {**self._state(epoch, number), "worker": place}


def _is_like(state: Any, expected: Mapping[str, Any]) -> bool:
    """Whether a state, which may come from a file, has what another has."""
    return (
        isinstance(state, Mapping)
        and set(state) == set(expected)
        and all(type(state[name]) is type(value) for name, value in expected.items())
        and min(state["epoch"], state["position"]) >= 0
    )


def _of_another(
    state: Mapping[str, Any], expected: Mapping[str, Any], differing: set[str]
) -> TrnconvError:
    words = "; ".join(
        f"{name}: {state[name]!r} instead of {expected[name]!r}" for name in sorted(differing)
    )
    return TrnconvError(
        f"a state in the middle of another sequence of batches ({words}). Ask for the stream as it"
        " was, or begin an epoch of this one with set_epoch. To change the number of workers or"
        ' ranks, save batch["state"].'
    )
