"""Every message between ranks: bounded in time, counted, and errors name who is missing."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from trnconv.errors import TrnconvError, UnsupportedError
from trnconv.host.record import read_host
from trnconv.host.workarounds import POINT_TO_POINT
from trnconv.parallel.agreement import Agreement, Facts, difference_heard
from trnconv.parallel.errors import LostRankError
from trnconv.parallel.grid import BandGrid, Region, area, common, edges, sizes_of
from trnconv.parallel.traffic import ExchangeKind, Traffic, TrafficKind, halo_area
from trnconv.parallel.watch import Watch

Tensor = torch.Tensor
_Begun = TypeVar("_Begun")
Dims = tuple[int, ...]  # of a tensor, that are cut
Wanted = tuple[Region, ...]  # by each rank
Parts = dict[tuple[int, ...], Tensor]  # of a region, by where they begin
_POINT_TO_POINT = ("gloo", "nccl", "mpi")
_NEURON = (
    "neuron"  # has collectives; whether it has more, a probe says (docs/guides/on-a-device.md)
)
_SLICE_S = 0.05  # between two looks at the watch while waiting
_SETTLE_S = 1.0  # beyond the timeout, for the backend's own to come first


def exchange_kind(group: Any, name: str = "auto") -> ExchangeKind:
    """How to exchange rows over a group: as asked, or by what its backend is known to offer."""
    if name != "auto":
        names = [exchange.value for exchange in ExchangeKind]
        if name not in names:
            raise UnsupportedError(f"exchange={name!r}: auto, {' or '.join(names)}.")
        return ExchangeKind(name)
    backend = str(dist.get_backend(group))
    probed = backend == _NEURON and POINT_TO_POINT in read_host().workarounds
    return ExchangeKind.permute if probed or backend in _POINT_TO_POINT else ExchangeKind.all_gather


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
class Comm:
    """A communicator: this rank among the others of a group."""

    group: Any
    rank: int
    ranks: int
    exchange: ExchangeKind
    timeout_s: float
    watch: Watch | None  # None: nobody to wait for
    agreement: Agreement | None = None  # None: nobody to agree with
    traffic: Traffic = field(default_factory=Traffic)
    module: str = ""  # for whom the next message is
    is_broken: bool = False  # somebody is missing, or differs: nothing more is sent
    _waiter: _Waiter | None = None
    _under_way: list[Exchange] = field(default_factory=list)  # also those nobody waits for

    def fetch(self, local: Tensor, dims: Dims, grid: BandGrid, wanted: Wanted) -> Tensor:
        """Region `wanted[rank]` of a tensor of which this rank holds its part."""
        parts = self.start(local, dims, grid, wanted).rows()
        return joined_region({**parts, _corner(grid.of(self.rank)): local}, dims, wanted[self.rank])

    def start(self, local: Tensor, dims: Dims, grid: BandGrid, wanted: Wanted) -> Exchange:
        """Send what others want of this rank's part, and ask for what it wants of theirs.

        Nothing is waited for, so `local` must not change before the rows of the exchange are there.
        """
        if not any(edges(grid, wanted)):
            return Exchange(dict)
        positions = halo_area(grid, wanted, self.rank, self.exchange)
        received = positions * (local.nbytes // area(grid.of(self.rank)))
        self.traffic.note(self.module, TrafficKind.halo, received)
        begin = self._permuted if self.exchange is ExchangeKind.permute else self._from_all_edges
        exchange = Exchange(begin(local, dims, grid, wanted), 1, received)
        self._under_way = [earlier for earlier in self._under_way if not earlier.is_there]
        self._under_way.append(exchange)
        return exchange

    def _permuted(
        self, local: Tensor, dims: Dims, grid: BandGrid, wanted: Wanted
    ) -> Callable[[], Parts]:
        mine = grid.of(self.rank)
        messages, parts = [], {}
        for other in range(self.ranks):
            if other == self.rank:
                continue
            peer = dist.get_global_rank(self.group, other)
            if area(sent := common(mine, wanted[other])):
                part = cut_out(local, dims, mine, sent).contiguous()
                messages.append(dist.P2POp(dist.isend, _raw(part), peer, self.group))
            if area(got := common(grid.of(other), wanted[self.rank])):
                parts[_corner(got)] = _sized_like(local, dims, sizes_of(got))
                raw = _raw(parts[_corner(got)])
                messages.append(dist.P2POp(dist.irecv, raw, peer, self.group))
        works: list[Any] = []
        if messages:
            works = self._begun("exchange of rows", partial(dist.batch_isend_irecv, messages))
        module = self.module

        def arrived() -> Parts:
            if messages:  # held until here: they own the memory that is sent
                self._wait("exchange of rows", works, module)
            return parts

        return arrived

    def _from_all_edges(
        self, local: Tensor, dims: Dims, grid: BandGrid, wanted: Wanted
    ) -> Callable[[], Parts]:
        sent = edges(grid, wanted)
        held = grid.of(self.rank)
        mine = [cut_out(local, dims, held, region).reshape(-1) for region in sent[self.rank]]
        depth = local.numel() // area(held)  # elements of a position
        longest = depth * max(sum(map(area, regions)) for regions in sent)
        spare = local.new_zeros(longest - sum(part.numel() for part in mine))
        gathering = self._all_gathered(torch.cat([*mine, spare]))
        shape = local.shape

        def arrived() -> Parts:
            """What is wanted, without all the others that came."""
            parts: Parts = {}
            for other, flat in enumerate(gathering()):
                got = common(grid.of(other), wanted[self.rank])
                if other == self.rank or not area(got):
                    continue
                cells: Parts = {}
                counts = [depth * area(region) for region in sent[other]]
                cut = torch.split(flat.narrow(0, 0, sum(counts)), counts)
                for region, part in zip(sent[other], cut, strict=True):
                    cells[_corner(region)] = part.view(_resized(shape, dims, sizes_of(region)))
                parts[_corner(got)] = joined_region(cells, dims, got).clone()
            return parts

        return arrived

    def gather(
        self, local: Tensor, dims: Dims, grid: BandGrid, kind: TrafficKind = TrafficKind.gather
    ) -> Tensor:
        """The whole tensor, of which this rank holds its part."""
        padded = local
        if tuple(local.shape[dim] for dim in dims) != grid.largest:
            padded = _sized_like(local, dims, grid.largest).zero_()
            cut_out(padded, dims, grid.whole, _at_zero(grid.of(self.rank))).copy_(local)
        self.traffic.note(self.module, kind, (self.ranks - 1) * padded.nbytes)
        parts: Parts = {}
        for other, got in enumerate(self._all_gathered(padded)()):
            region = grid.of(other)
            parts[_corner(region)] = cut_out(got, dims, grid.whole, _at_zero(region))
        return joined_region(parts, dims, grid.whole).contiguous()

    def stacked(self, local: Tensor) -> Tensor:
        """A small tensor of every rank, in the order of ranks."""
        self.traffic.note(self.module, TrafficKind.statistics, (self.ranks - 1) * local.nbytes)
        return torch.stack(self._all_gathered(local)())

    def each(self, local: Tensor) -> list[Tensor]:
        """Results of every rank, equally large."""
        self.traffic.note(self.module, TrafficKind.result, (self.ranks - 1) * local.nbytes)
        return self._all_gathered(local)()

    def close(self) -> None:
        """Stop to count as alive. All ranks together, when no more messages are to come.

        Where a rank was lost or differs, the others are not waited for.
        """
        if not self.is_broken:
            self.barrier()
        if self.watch is not None:
            self.watch.stop()

    def summed(self, local: Tensor) -> Tensor:
        """The sum over ranks, in float32 at least; for gradients."""
        wide = torch.promote_types(local.dtype, torch.float32)
        total = local.to(wide).contiguous().clone()
        self._wait("sum of gradients", [dist.all_reduce(total, group=self.group, async_op=True)])
        return total.to(local.dtype)

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

    def _all_gathered(self, local: Tensor) -> Callable[[], list[Tensor]]:
        local = local.contiguous()
        got = [torch.empty_like(local) for _ in range(self.ranks)]
        raw = [_raw(tensor) for tensor in got]
        gather = partial(dist.all_gather, raw, _raw(local), group=self.group, async_op=True)
        work = self._begun("all-gather", gather)
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
        for_module = self.module if module is None else module
        self.watch.waits(for_module)
        outcome = self._waiter.wait(works, self.timeout_s)
        began = time.monotonic()
        until = began + self.timeout_s + _SETTLE_S
        while not outcome.done.wait(_SLICE_S):
            dead = self.watch.dead()
            if dead is not None or time.monotonic() > until:
                outcome.error = outcome.error or TimeoutError("nothing came")
                break
        if outcome.error is not None:
            raise self._lost(what, for_module, began, outcome.error) from outcome.error
        self.watch.works()

    def _begun(self, what: str, begin: Callable[[], _Begun]) -> _Begun:
        """What is under way; if others have left already, the same error as when one waits."""
        try:
            return begin()
        except RuntimeError as gone:  # torch's, of a connection that was closed
            raise self._lost(what, self.module, time.monotonic(), gone) from gone

    def _lost(self, what: str, for_module: str, began: float, error: BaseException) -> TrnconvError:
        assert self.watch is not None
        self.is_broken = True
        where = f" for {for_module}" if for_module else ""
        said = str(error).splitlines()[0]
        verdict = self.watch.verdict(began)
        return difference_heard(self.watch) or LostRankError(
            f"{what}{where} failed on rank {self.rank} of {self.ranks}: {verdict}. ({said}) Start"
            " the group again without it, or with a longer timeout_s."
        )


class MetaComm(Comm):
    """One rank on the meta device: nobody answers, and all is counted."""

    def _permuted(
        self, local: Tensor, dims: Dims, grid: BandGrid, wanted: Wanted
    ) -> Callable[[], Parts]:
        parts = {}
        for other in range(self.ranks):
            got = common(grid.of(other), wanted[self.rank])
            if other != self.rank and area(got):
                parts[_corner(got)] = _sized_like(local, dims, sizes_of(got))
        return lambda: parts

    def _all_gathered(self, local: Tensor) -> Callable[[], list[Tensor]]:
        return lambda: [local] * self.ranks


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


def joined_region(parts: Parts, dims: Dims, region: Region) -> Tensor:
    """A region out of parts of it; as it lies, if one part has all of it, else copied once."""
    pieces_by_region: dict[Region, Tensor] = {}
    for corner, part in parts.items():
        sizes = [part.shape[dim] for dim in dims]
        held = tuple((start, start + size) for start, size in zip(corner, sizes, strict=True))
        if area(some := common(held, region)):
            pieces_by_region[some] = cut_out(part, dims, held, some)
    if len(pieces_by_region) == 1:
        return next(iter(pieces_by_region.values()))
    if len(dims) == 1:
        return torch.cat([pieces_by_region[some] for some in sorted(pieces_by_region)], dims[0])
    whole = _sized_like(next(iter(pieces_by_region.values())), dims, sizes_of(region))
    for some, part in pieces_by_region.items():
        cut_out(whole, dims, region, some).copy_(part)
    return whole


def _corner(region: Region) -> tuple[int, ...]:
    return tuple(start for start, _ in region)


def _at_zero(region: Region) -> Region:
    return tuple((0, stop - start) for start, stop in region)


def cut_out(tensor: Tensor, dims: Dims, held: Region, some: Region) -> Tensor:
    """Some of the region that a tensor is."""
    for dim, (first, _), (start, stop) in zip(dims, held, some, strict=True):
        tensor = tensor.narrow(dim, start - first, stop - start)
    return tensor


def _raw(tensor: Tensor) -> Tensor:
    """The bytes of a tensor: backends differ in the types they move."""
    return tensor.view(-1).view(torch.uint8)


def _sized_like(tensor: Tensor, dims: Dims, sizes: Sequence[int]) -> Tensor:
    return tensor.new_empty(_resized(tensor.shape, dims, sizes))


def _resized(shape: Sequence[int], dims: Dims, sizes: Sequence[int]) -> list[int]:
    result = list(shape)
    for dim, size in zip(dims, sizes, strict=True):
        result[dim] = size
    return result
