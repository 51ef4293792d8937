"""Links: every message between ranks. Bounded in time, counted, and errors name who is missing."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from trnconv.errors import UnsupportedError
from trnconv.parallel.bands import Bands, Interval, meeting
from trnconv.parallel.errors import LostRankError
from trnconv.parallel.traffic import Kind, Offer, Traffic, edges, halo_rows
from trnconv.parallel.watch import Watch

Tensor = torch.Tensor
_POINT_TO_POINT = ("gloo", "nccl", "mpi")  # Neuron's native backend has collectives only
_SLICE_S = 0.05  # between two looks at the watch while waiting
_SETTLE_S = 1.0  # beyond the timeout, for the backend's own to come first


def offered(group: Any, asked: str = "auto") -> Offer:
    """How to exchange rows over a group: as asked, or by what its backend is known to offer."""
    if asked != "auto":
        names = [offer.value for offer in Offer]
        if asked not in names:
            raise UnsupportedError(f"exchange={asked!r}: auto, {' or '.join(names)}.")
        return Offer(asked)
    backend = str(dist.get_backend(group))
    return Offer.permute if backend in _POINT_TO_POINT else Offer.all_gather


@dataclass
class Links:
    """This rank among the others of a group."""

    group: Any
    rank: int
    ranks: int
    offer: Offer
    timeout_s: float
    watch: Watch | None  # None: nobody to wait for
    traffic: Traffic = field(default_factory=Traffic)
    module: str = ""  # for whom the next message is
    _waiter: _Waiter | None = None

    def fetch(self, own: Tensor, dim: int, bands: Bands, wanted: Sequence[Interval]) -> Tensor:
        """Rows `wanted[rank]` of a tensor of which this rank holds its band."""
        parts = self._fetched(own, dim, bands, wanted)
        start, stop = meeting(bands.of(self.rank), wanted[self.rank])
        if start < stop:
            parts[start] = own.narrow(dim, start - bands.of(self.rank)[0], stop - start)
        if len(parts) == 1:
            return next(iter(parts.values()))
        return torch.cat([parts[start] for start in sorted(parts)], dim)

    def _fetched(
        self, own: Tensor, dim: int, bands: Bands, wanted: Sequence[Interval]
    ) -> dict[int, Tensor]:
        """The rows that others hold, by the number of the first."""
        rows = halo_rows(bands, wanted, self.rank, self.offer)
        if not any(edges(bands, wanted, source) for source in range(self.ranks)):
            return {}
        row_bytes = own.numel() // own.shape[dim] * own.element_size()
        self.traffic.note(self.module, Kind.halo, rows * row_bytes)
        if self.offer is Offer.permute:
            return self._permuted(own, dim, bands, wanted)
        return self._from_all_edges(own, dim, bands, wanted)

    def _permuted(
        self, own: Tensor, dim: int, bands: Bands, wanted: Sequence[Interval]
    ) -> dict[int, Tensor]:
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
        if messages:
            self._wait("exchange of rows", dist.batch_isend_irecv(messages))
        return parts

    def _from_all_edges(
        self, own: Tensor, dim: int, bands: Bands, wanted: Sequence[Interval]
    ) -> dict[int, Tensor]:
        sent = [edges(bands, wanted, source) for source in range(self.ranks)]
        base = bands.of(self.rank)[0]
        mine = [own.narrow(dim, start - base, stop - start) for start, stop in sent[self.rank]]
        longest = max(sum(stop - start for start, stop in each) for each in sent)
        filled = sum(part.shape[dim] for part in mine)
        spare = [_rows_like(own, dim, longest - filled).zero_()] if filled < longest else []
        got = self._all_gather(torch.cat([*mine, *spare], dim))
        parts = {}
        for other in range(self.ranks):
            if other == self.rank:
                continue
            at = 0
            for start, stop in sent[other]:
                first, last = meeting((start, stop), wanted[self.rank])
                if first < last:
                    parts[first] = got[other].narrow(dim, at + first - start, last - first)
                at += stop - start
        return parts

    def gather(self, own: Tensor, dim: int, bands: Bands, kind: Kind = Kind.gather) -> Tensor:
        """The whole tensor, of which this rank holds its band."""
        longest = max(bands.sizes())
        spare = longest - own.shape[dim]
        padded = torch.cat([own, _rows_like(own, dim, spare).zero_()], dim) if spare else own
        row_bytes = own.numel() // own.shape[dim] * own.element_size()
        self.traffic.note(self.module, kind, (self.ranks - 1) * longest * row_bytes)
        got = self._all_gather(padded)
        sizes = bands.sizes()
        return torch.cat([got[r].narrow(dim, 0, sizes[r]) for r in range(self.ranks)], dim)

    def stacked(self, own: Tensor) -> Tensor:
        """A small tensor of every rank, in the order of ranks."""
        self.traffic.note(self.module, Kind.statistics, (self.ranks - 1) * own.nbytes)
        return torch.stack(self._all_gather(own))

    def summed(self, own: Tensor) -> Tensor:
        """The sum over ranks, in float32 at least; for gradients."""
        wide = torch.promote_types(own.dtype, torch.float32)
        total = own.to(wide).contiguous().clone()
        self._wait("sum of gradients", [dist.all_reduce(total, group=self.group, async_op=True)])
        return total.to(own.dtype)

    def barrier(self) -> None:
        """Until every rank is here."""
        self._wait("barrier", [dist.barrier(self.group, async_op=True)])

    def _all_gather(self, own: Tensor) -> list[Tensor]:
        own = own.contiguous()
        got = [torch.empty_like(own) for _ in range(self.ranks)]
        raw = [_raw(each) for each in got]
        work = dist.all_gather(raw, _raw(own), group=self.group, async_op=True)
        self._wait("all-gather", [work])
        return got

    def _wait(self, what: str, works: Sequence[Any]) -> None:
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
            where = f" for {self.module}" if self.module else ""
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
    ) -> dict[int, Tensor]:
        parts = {}
        for other in range(self.ranks):
            start, stop = meeting(bands.of(other), wanted[self.rank])
            if other != self.rank and start < stop:
                parts[start] = _rows_like(own, dim, stop - start)
        return parts

    def _all_gather(self, own: Tensor) -> list[Tensor]:
        return [own] * self.ranks


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


def _raw(tensor: Tensor) -> Tensor:
    """The bytes of a tensor: backends differ in the types they move."""
    return tensor.view(-1).view(torch.uint8)


def _rows_like(tensor: Tensor, dim: int, rows: int) -> Tensor:
    sizes = list(tensor.shape)
    sizes[dim] = rows
    return tensor.new_empty(sizes)
