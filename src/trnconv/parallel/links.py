"""Links: every message between ranks. Bounded in time, counted, and errors name who is missing."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from trnconv.errors import TrnconvError, UnsupportedError
from trnconv.host.record import read_host
from trnconv.host.switches import POINT_TO_POINT
from trnconv.parallel.agreement import Agreement, Facts
from trnconv.parallel.bands import Bands, Interval, meeting
from trnconv.parallel.errors import LostRankError
from trnconv.parallel.traffic import LinkOffer, Traffic, TrafficKind, edges, halo_rows
from trnconv.parallel.watch import Watch

Tensor = torch.Tensor
Parts = dict[int, Tensor]  # rows, by the number of the first of them
_POINT_TO_POINT = ("gloo", "nccl", "mpi")
_NEURON = (
    "neuron"  # has collectives; whether it has more, a probe says (docs/guides/on-a-device.md)
)
_SLICE_S = 0.05  # between two looks at the watch while waiting
_SETTLE_S = 1.0  # beyond the timeout, for the backend's own to come first


def offered(group: Any, asked: str = "auto") -> LinkOffer:
    """How to exchange rows over a group: as asked, or by what its backend is known to offer."""
    if asked != "auto":
        names = [offer.value for offer in LinkOffer]
        if asked not in names:
            raise UnsupportedError(f"exchange={asked!r}: auto, {' or '.join(names)}.")
        return LinkOffer(asked)
    backend = str(dist.get_backend(group))
    probed = backend == _NEURON and POINT_TO_POINT in read_host().switches
    return LinkOffer.permute if probed or backend in _POINT_TO_POINT else LinkOffer.all_gather


class Exchange:
    """Rows of other ranks, on their way or there."""

    def __init__(
        self, arrived: Callable[[], Parts], messages: int = 0, received_bytes: int = 0
    ) -> None:
        self._arrived = arrived
        self._parts: Parts | None = None
        self.messages = messages
        self.received_bytes = received_bytes

    @property
    def is_there(self) -> bool:
        """Whether somebody has waited for it."""
        return self._parts is not None

    def rows(self) -> Parts:
        """Wait for them."""
        if self._parts is None:
            self._parts = self._arrived()
        return self._parts


@dataclass
class Links:
    """This rank among the others of a group."""

    group: Any
    rank: int
    ranks: int
    offer: LinkOffer
    timeout_s: float
    watch: Watch | None  # None: nobody to wait for
    agreement: Agreement | None = None  # None: nobody to agree with
    traffic: Traffic = field(default_factory=Traffic)
    module: str = ""  # for whom the next message is
    is_broken: bool = False  # somebody is missing, or differs: nothing more is sent
    _waiter: _Waiter | None = None
    _under_way: list[Exchange] = field(default_factory=list)  # also those nobody waits for

    def fetch(self, own: Tensor, dim: int, bands: Bands, wanted: Sequence[Interval]) -> Tensor:
        """Rows `wanted[rank]` of a tensor of which this rank holds its band."""
        parts = self.start(own, dim, bands, wanted).rows()
        return joined_rows({**parts, bands.of(self.rank)[0]: own}, dim, wanted[self.rank])

    def start(self, own: Tensor, dim: int, bands: Bands, wanted: Sequence[Interval]) -> Exchange:
        """Send what others want of this rank's band, and ask for what it wants of theirs.

        Nothing is waited for, so `own` must not change before the rows of the exchange are there.
        """
        if not any(edges(bands, wanted, source) for source in range(self.ranks)):
            return Exchange(dict)
        rows = halo_rows(bands, wanted, self.rank, self.offer)
        received = rows * (own.numel() // own.shape[dim] * own.element_size())
        self.traffic.note(self.module, TrafficKind.halo, received)
        begin = self._permuted if self.offer is LinkOffer.permute else self._from_all_edges
        exchange = Exchange(begin(own, dim, bands, wanted), 1, received)
        self._under_way = [earlier for earlier in self._under_way if not earlier.is_there]
        self._under_way.append(exchange)
        return exchange

    def _permuted(
        self, own: Tensor, dim: int, bands: Bands, wanted: Sequence[Interval]
    ) -> Callable[[], Parts]:
        mine, base = bands.of(self.rank), bands.of(self.rank)[0]
        messages, parts = [], {}
        for other in range(self.ranks):
            if other == self.rank:
                continue
            peer = dist.get_global_rank(self.group, other)
            start, stop = meeting(mine, wanted[other])
            if start < stop:
                part = own.narrow(dim, start - base, stop - start).contiguous()
                messages.append(dist.P2POp(dist.isend, _raw(part), peer, self.group))
            start, stop = meeting(bands.of(other), wanted[self.rank])
            if start < stop:
                parts[start] = _rows_like(own, dim, stop - start)
                messages.append(dist.P2POp(dist.irecv, _raw(parts[start]), peer, self.group))
        works = dist.batch_isend_irecv(messages) if messages else []
        module = self.module

        def arrived() -> Parts:
            if messages:  # held until here: they own the memory that is sent
                self._wait("exchange of rows", works, module)
            return parts

        return arrived

    def _from_all_edges(
        self, own: Tensor, dim: int, bands: Bands, wanted: Sequence[Interval]
    ) -> Callable[[], Parts]:
        sent = [edges(bands, wanted, source) for source in range(self.ranks)]
        base = bands.of(self.rank)[0]
        mine = [own.narrow(dim, start - base, stop - start) for start, stop in sent[self.rank]]
        longest = max(sum(stop - start for start, stop in intervals) for intervals in sent)
        filled = sum(part.shape[dim] for part in mine)
        spare = [_rows_like(own, dim, longest - filled).zero_()] if filled < longest else []
        gathering = self._all_gathered(torch.cat([*mine, *spare], dim))
        return lambda: self._of_edges(gathering(), dim, sent, wanted[self.rank])

    def _of_edges(
        self, got: list[Tensor], dim: int, sent: Sequence[tuple[Interval, ...]], rows: Interval
    ) -> Parts:
        """The rows that are wanted, without all the others that came."""
        parts = {}
        for other in range(self.ranks):
            at = 0
            for start, stop in sent[other] if other != self.rank else ():
                first, last = meeting((start, stop), rows)
                if first < last:
                    parts[first] = got[other].narrow(dim, at + first - start, last - first).clone()
                at += stop - start
        return parts

    def gather(
        self, own: Tensor, dim: int, bands: Bands, kind: TrafficKind = TrafficKind.gather
    ) -> Tensor:
        """The whole tensor, of which this rank holds its band."""
        longest = max(bands.sizes())
        spare = longest - own.shape[dim]
        padded = torch.cat([own, _rows_like(own, dim, spare).zero_()], dim) if spare else own
        row_bytes = own.numel() // own.shape[dim] * own.element_size()
        self.traffic.note(self.module, kind, (self.ranks - 1) * longest * row_bytes)
        got = self._all_gathered(padded)()
        sizes = bands.sizes()
        return torch.cat([got[r].narrow(dim, 0, sizes[r]) for r in range(self.ranks)], dim)

    def stacked(self, own: Tensor) -> Tensor:
        """A small tensor of every rank, in the order of ranks."""
        self.traffic.note(self.module, TrafficKind.statistics, (self.ranks - 1) * own.nbytes)
        return torch.stack(self._all_gathered(own)())

    def summed(self, own: Tensor) -> Tensor:
        """The sum over ranks, in float32 at least; for gradients."""
        wide = torch.promote_types(own.dtype, torch.float32)
        total = own.to(wide).contiguous().clone()
        self._wait("sum of gradients", [dist.all_reduce(total, group=self.group, async_op=True)])
        return total.to(own.dtype)

    def state(self, occasion: str, facts: Facts) -> None:
        """Say what this rank is about to do: all have to do it alike."""
        if self.agreement is None:
            return
        try:
            self.agreement.state(occasion, facts)
        except TrnconvError:
            self.is_broken = True
            raise

    def barrier(self) -> None:
        """Until every rank is here, and all that was asked for has come."""
        for exchange in self._under_way:
            exchange.rows()
        self._under_way = []
        self._wait("barrier", [dist.barrier(self.group, async_op=True)])

    def _all_gathered(self, own: Tensor) -> Callable[[], list[Tensor]]:
        own = own.contiguous()
        got = [torch.empty_like(own) for _ in range(self.ranks)]
        raw = [_raw(tensor) for tensor in got]
        work = dist.all_gather(raw, _raw(own), group=self.group, async_op=True)
        module = self.module

        def arrived() -> list[Tensor]:
            self._wait("all-gather", [work], module)
            return got

        return arrived

    def _wait(self, what: str, works: Sequence[Any], module: str | None = None) -> None:
        """Until all is there; or an error that names who is missing, within the timeout."""
        if self._waiter is None:
            self._waiter = _Waiter()
        assert self.watch is not None
        outcome = self._waiter.wait(works, self.timeout_s)
        began = time.monotonic()
        until = began + self.timeout_s + _SETTLE_S
        while not outcome.done.wait(_SLICE_S):
            dead = self.watch.dead()
            if dead is not None or time.monotonic() > until:
                outcome.error = outcome.error or TimeoutError("nothing came")
                break
        if outcome.error is not None:
            self.is_broken = True
            asked = self.module if module is None else module
            where = f" for {asked}" if asked else ""
            said = str(outcome.error).splitlines()[0]
            raise LostRankError(
                f"{what}{where} failed on rank {self.rank} of {self.ranks}:"
                f" {self.watch.verdict(began)}. ({said}) Start the group again without it, or with"
                " a longer timeout_s."
            ) from outcome.error


class PaperLinks(Links):
    """One rank on the meta device: nobody answers, and all is counted."""

    def _permuted(
        self, own: Tensor, dim: int, bands: Bands, wanted: Sequence[Interval]
    ) -> Callable[[], Parts]:
        parts = {}
        for other in range(self.ranks):
            start, stop = meeting(bands.of(other), wanted[self.rank])
            if other != self.rank and start < stop:
                parts[start] = _rows_like(own, dim, stop - start)
        return lambda: parts

    def _all_gathered(self, own: Tensor) -> Callable[[], list[Tensor]]:
        return lambda: [own] * self.ranks


@dataclass
class _Outcome:
    done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None


class _Waiter:
    """A thread that waits, because a wait for the backend cannot be interrupted."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[tuple[Sequence[Any], float, _Outcome]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="trnconv-wait", daemon=True).start()

    def wait(self, works: Sequence[Any], timeout_s: float) -> _Outcome:
        outcome = _Outcome()
        self._asked.put((works, timeout_s, outcome))
        return outcome

    def _run(self) -> None:
        while True:
            works, timeout_s, outcome = self._asked.get()
            try:
                for work in works:
                    work.wait(timedelta(seconds=timeout_s))
            except (RuntimeError, ValueError) as failed:
                outcome.error = failed
            outcome.done.set()


def joined_rows(parts: Parts, dim: int, rows: Interval) -> Tensor:
    """The rows of an interval side by side; as they lie, if one part has them all."""
    found = []
    for first in sorted(parts):
        start, stop = meeting((first, first + parts[first].shape[dim]), rows)
        if start < stop:
            found.append(parts[first].narrow(dim, start - first, stop - start))
    return found[0] if len(found) == 1 else torch.cat(found, dim)


def _raw(tensor: Tensor) -> Tensor:
    """The bytes of a tensor: backends differ in the types they move."""
    return tensor.view(-1).view(torch.uint8)


def _rows_like(tensor: Tensor, dim: int, rows: int) -> Tensor:
    sizes = list(tensor.shape)
    sizes[dim] = rows
    return tensor.new_empty(sizes)
