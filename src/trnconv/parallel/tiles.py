"""Tiles of a model's own tiling, shared out over ranks: the pictures of one rank, bit for bit.

A model that tiles calls its decoder (or encoder) for each tile, several times if it goes by chunks
of frames, and then blends. Here its own method runs twice: once with the decoder called for this
rank's tiles only, in which other tiles are memory of the right size; then, when all ranks have
told each other their results, with those in place of the decoder. So the blending is the model's
own, of the values one rank would have.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from trnconv.errors import UnsupportedError
from trnconv.parallel.agreement import WeightDigests, video_facts
from trnconv.parallel.comm import Comm
from trnconv.parallel.comm_group import DEFAULT, Options, connect
from trnconv.parallel.mesh import cut_by
from trnconv.parallel.traffic import Traffic
from trnconv.pytorch.lazy.base.bypass import passing
from trnconv.pytorch.lazy.fusion.epilogues import value_of

Tensor = torch.Tensor
_HALVES = {"tiled_decode": "decoder", "tiled_encode": "encoder"}


@dataclass
class _Dealer:
    """In place of a decoder's forward, while a model tiles."""

    module: nn.Module
    forward: Callable[..., Any]  # its own
    comm: Comm
    shapes: list[torch.Size] = field(default_factory=list)  # of results, in the order of calls
    owners: list[int] = field(default_factory=list)
    own: list[Tensor] = field(default_factory=list)  # results of this rank
    replayed: list[Tensor] | None = None  # all of them, last first
    returns_tuple: bool = False
    _tile: int = -1
    _first: int = 0  # call of the tile
    _size: tuple[int, ...] = ()  # of what the tile is made of
    _known: dict[tuple[int, ...], list[torch.Size]] = field(default_factory=dict)
    _left: list[torch.Size] = field(default_factory=list)  # of a tile of which sizes are known
    _meta: nn.Module | None = None

    def begin(self) -> None:
        """No tile yet."""
        self.shapes, self.owners, self.own = [], [], []
        self.replayed, self._tile, self._known, self._left = None, -1, {}, []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A result: this rank's, or memory for another's; or, at last, what the owner found."""
        if self.replayed is not None:
            return self._as_returned(self.replayed.pop(), None)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if not self._left and len(tensors) == 1:  # nothing is kept of earlier frames
            self._next_tile(tuple(tensors[0].shape))
        kept, owner = None, self._tile % self.comm.ranks
        if self._left:
            shape = self._left.pop(0)
            y = torch.empty(shape, dtype=tensors[0].dtype, device=tensors[0].device)
        else:
            mine = owner == self.comm.rank
            result = self.forward(*args, **kwargs) if mine else self._on_paper(args, kwargs)
            self.returns_tuple = isinstance(result, tuple)
            y, kept = result if self.returns_tuple else (result, None)
            y = value_of(y) if mine else torch.empty_like(y, device=tensors[0].device)
            self.own += [y.clone()] if mine else []  # models blend in place
        self.shapes.append(y.shape)
        self.owners.append(owner)
        return self._as_returned(y, kept)

    def exchange(self) -> None:
        """Tell the others, and have what they found."""
        counts = [0] * self.comm.ranks
        for shape, owner in zip(self.shapes, self.owners, strict=True):
            counts[owner] += shape.numel()
        like = self.own[0] if self.own else next(self.module.parameters()).detach()
        flat = [y.reshape(-1) for y in self.own]
        spare = like.new_zeros(max(counts) - counts[self.comm.rank])
        parts = [
            iter(torch.split(every, [*self._sizes_of(rank), max(counts) - counts[rank]]))
            for rank, every in enumerate(self.comm.each(torch.cat([*flat, spare])))
        ]
        results = [
            next(parts[owner]).view(shape).clone()
            for shape, owner in zip(self.shapes, self.owners, strict=True)
        ]
        self.replayed = results[::-1]

    def _sizes_of(self, rank: int) -> list[int]:
        both = zip(self.shapes, self.owners, strict=True)
        return [shape.numel() for shape, owner in both if owner == rank]

    def _next_tile(self, size: tuple[int, ...]) -> None:
        if self._tile >= 0:
            self._known.setdefault(self._size, self.shapes[self._first :])
        self._tile, self._first, self._size = self._tile + 1, len(self.shapes), size
        if self._tile % self.comm.ranks != self.comm.rank:
            self._left = list(self._known.get(size, []))

    def _as_returned(self, y: Tensor, kept: Any) -> Any:
        return (y, kept) if self.returns_tuple else y

    def _on_paper(self, args: Any, kwargs: Any) -> Any:
        """The result on the meta device, and what is kept of frames."""
        if self._meta is None:
            weights = [*self.module.parameters(), *self.module.buffers()]
            before = self.module.__dict__.pop("forward")
            try:
                self._meta = copy.deepcopy(self.module, {id(w): _on_meta(w) for w in weights})
            finally:
                self.module.__dict__["forward"] = before
        with passing():
            named = {name: _argument(value) for name, value in kwargs.items()}
            return self._meta(*map(_argument, args), **named)


def _argument(value: Any) -> Any:
    """On the meta device; a list stays itself, because a decoder keeps frames in it."""
    if isinstance(value, list):
        value[:] = [tree_map(_on_meta, item) for item in value]
        return value
    return tree_map(_on_meta, value)


def _on_meta(value: Any) -> Any:
    if isinstance(value, nn.Parameter):
        return nn.Parameter(value.detach().to("meta"), requires_grad=False)
    return value_of(value).to("meta") if isinstance(value, Tensor) else value


@dataclass(frozen=True)
class _Tiled:
    """In place of a model's `tiled_decode` or `tiled_encode`."""

    method: Callable[..., Any]
    dealer: _Dealer
    checks_values: bool

    def __call__(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """The method's own result, from tiles of all ranks."""
        module, comm = self.dealer.module, self.dealer.comm
        if torch.is_grad_enabled() and (x.requires_grad or _learns(module)):
            raise UnsupportedError(
                "gradients through tiles of several ranks: call the model under torch.no_grad(),"
                " or use shard_, which has gradients."
            )
        comm.state("the next video", video_facts(x, with_values=self.checks_values))
        before = module.__dict__.get("forward")
        self.dealer.begin()
        module.__dict__["forward"] = self.dealer
        try:
            self.method(x, *args, **kwargs)
            self.dealer.exchange()
            return self.method(x, *args, **kwargs)
        finally:
            self.dealer.begin()
            del module.__dict__["forward"]
            if before is not None:
                module.__dict__["forward"] = before


def _learns(module: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())


@dataclass(frozen=True)
class SharedTiles:
    """A model whose tiles are shared out, on one rank."""

    model: nn.Module
    comm: Comm
    before: dict[str, Any]  # methods of the instance that ours replaced

    @property
    def traffic(self) -> Traffic:
        """What this rank received."""
        return self.comm.traffic

    def close(self) -> None:
        """The model as it was. All ranks together."""
        self.comm.close()
        for name, method in self.before.items():
            del self.model.__dict__[name]
            if method is not None:
                self.model.__dict__[name] = method


def share_tiles_(model: nn.Module, mesh: Any = None, options: Options = DEFAULT) -> SharedTiles:
    """Share out the tiles of a model's own tiling, one after the other, over the ranks of a group.

    Every rank calls this, then `encode` or `decode` with the same whole video, and has the whole
    result: that of the same tiling on one rank, bit for bit. What fits one tile is not shared out.
    Patch the model first, if it is to run on our kernels: options of patches are not looked at.
    """
    if not getattr(model, "use_tiling", False):
        raise UnsupportedError(
            f"{type(model).__name__} without tiling: call enable_tiling() first, or use shard_,"
            " which needs no tiles."
        )
    if options != Options(timeout_s=options.timeout_s, check_values=options.check_values):
        raise UnsupportedError("share_tiles_: of options, tiles have timeout_s and check_values.")
    group, _ = cut_by(mesh, "rows", None)
    comm = connect(group, options, type(model).__name__, WeightDigests(model).facts())
    before = {}
    for name, half in _HALVES.items():
        module = getattr(model, half, None)
        if hasattr(model, name) and module is not None:
            before[name] = model.__dict__.get(name)
            dealer = _Dealer(module, module.forward, comm)
            model.__dict__[name] = _Tiled(getattr(model, name), dealer, options.check_values)
    return SharedTiles(model, comm, before)
