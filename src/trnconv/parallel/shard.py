"""shard_ and unshard_: a model on several ranks, each with a band of one video."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import distributed_c10d

from trnconv.errors import ShapeError, UnsupportedError
from trnconv.parallel.agreement import Agreement, Facts, Weights, environment_facts
from trnconv.parallel.banded_model import COLUMNS, NAMES, ROWS, BandedModel
from trnconv.parallel.bands import Bands
from trnconv.parallel.forward import LazyBands, banded_convolution_forward, banded_forward
from trnconv.parallel.links import Links, offered
from trnconv.parallel.overlap import OVERLAPS
from trnconv.parallel.traffic import Traffic, TrafficKind
from trnconv.parallel.watch import Watch
from trnconv.pytorch.backends import Backend
from trnconv.pytorch.lazy.context import ALL_REWRITES, Rewrites
from trnconv.pytorch.patching import PatchReport, patch_, unpatch_
from trnconv.pytorch.patching.methods import (
    ATTRIBUTE,
    Bound,
    Patch,
    convolution_forward,
    module_forward,
)

Tensor = torch.Tensor
_AXES = {"rows": ROWS, "columns": COLUMNS}
_TRANSPOSED = (nn.ConvTranspose2d, nn.ConvTranspose3d)
_times: Counter[str] = Counter()  # a group was linked, on this rank; equal on all of its ranks
PATIENCE_S = 10.0  # without a sign of life; less if the timeout is


@dataclass(frozen=True)
class Options:
    """How a model in bands runs; the first three as for `patch_`."""

    reproducible: bool = False
    rewrites: Rewrites = ALL_REWRITES
    backend: str | Backend | None = None
    exchange: Literal["auto", "permute", "all_gather"] = "auto"
    overlap: Literal["auto", "always", "never"] = "auto"  # auto: where it is modelled to pay
    timeout_s: float = 300.0  # of one message


DEFAULT = Options()


@dataclass(frozen=True)
class Shards:
    """A model in bands, on one rank."""

    model: nn.Module
    report: PatchReport
    shares: tuple[float, ...]
    spread: BandedModel
    weights: Weights

    @property
    def rank(self) -> int:
        """Among those that share the video."""
        return self.spread.links.rank

    @property
    def traffic(self) -> Traffic:
        """What this rank received since the model was sharded."""
        return self.spread.links.traffic

    @property
    def gathering(self) -> tuple[str, ...]:
        """Modules that ran on whole tensors so far: every rank does all of their own work."""
        return tuple(sorted(self.spread.gathering))

    def split(self, whole: Tensor, unit: int = 1) -> Tensor:
        """This rank's band of a video or latent that every rank has; it starts a new video.

        Bounds are multiples of `unit` rows: for pixels that are to be encoded, of the pixels of one
        latent row, so that the bands of every resolution are exact multiples of each other.
        """
        dim = self._dim(whole)
        bands = Bands.shared(whole.shape[dim], self.shares, unit)
        self._begin(bands, f"{tuple(whole.shape)} {whole.dtype}")
        start, stop = bands.of(self.rank)
        return whole.narrow(dim, start, stop - start).contiguous()

    def begin(self, bands: Bands) -> None:
        """Say what the next band is a band of, if it was not cut by `split`."""
        if bands.ranks != self.spread.links.ranks:
            raise ShapeError(
                f"{bands.ranks} bands for {self.spread.links.ranks} ranks: one for each is needed."
            )
        self._begin(bands, "")

    def _begin(self, bands: Bands, whole: str) -> None:
        links = self.spread.links
        facts = {"the video": whole, "the bounds of bands": str(bands.bounds)}
        links.state("the next video", {**facts, "the weights": self.weights.digest()})
        self.spread.levels.begin(bands)

    def whole(self, band: Tensor) -> Tensor:
        """The bands of all ranks joined, on every rank."""
        dim = self._dim(band)
        bands = self.spread.levels.of(band.shape[dim])
        self.spread.links.module = ""
        return self.spread.links.gather(band, dim, bands, TrafficKind.result)

    def close(self) -> None:
        """Stop to count as alive. All ranks together, when no more messages are to come.

        Where a rank was lost or differs, the others are not waited for.
        """
        if not self.spread.links.is_broken:
            self.spread.links.barrier()
        if self.spread.links.watch is not None:
            self.spread.links.watch.stop()

    def __str__(self) -> str:
        """What was sent, and what runs on whole tensors."""
        lines = [f"bands of {NAMES[self.spread.cut]}, rank {self.rank} of {len(self.shares)}"]
        lines += [f"{name} runs on whole tensors, on every rank" for name in self.gathering]
        return "\n".join([*lines, "received:", str(self.traffic)])

    def _dim(self, tensor: Tensor) -> int:
        if tensor.dim() not in (4, 5):
            raise ShapeError(
                f"a tensor of shape {tuple(tensor.shape)}: videos are (batch, channels, frames,"
                " height, width), images have no frames."
            )
        return tensor.dim() + self.spread.cut - 3


def shard_(
    model: nn.Module,
    mesh: Any = None,
    axis: Literal["rows", "columns"] = "rows",
    shares: Sequence[float] | None = None,
    options: Options = DEFAULT,
) -> Shards:
    """Patch a model to run on bands of a video, one on each rank of a group.

    `mesh` is a `DeviceMesh` of one axis (`mesh["name"]` of a larger one), a process group, or None
    for all ranks. Every rank calls this, and then the model, with bands that `split` cut; results
    are bands, which `whole` joins. `shares` are the parts of the video, in proportion; equal ones
    if not given.
    """
    if axis not in _AXES:
        raise UnsupportedError(f"axis={axis!r}: rows or columns.")
    group = _group(mesh)
    ranks = dist.get_world_size(group)
    parts = tuple(shares) if shares is not None else (1.0,) * ranks
    if len(parts) != ranks:
        raise ShapeError(f"{len(parts)} shares for {ranks} ranks: one for each is needed.")
    if options.overlap not in OVERLAPS:
        raise UnsupportedError(f"overlap={options.overlap!r}: one of {', '.join(OVERLAPS)}.")
    _require_untiled(model)
    report = patch_(
        model,
        reproducible=options.reproducible,
        rewrites=options.rewrites,
        backend=options.backend,
    )
    try:
        _require_taken(model, report, _AXES[axis])
        links = _linked(group, options)
        weights = Weights(model)
        said = {"the model": type(model).__name__, "the cut": axis, "shares": str(parts)}
        links.state("the model", {**said, **_stated(options), **weights.facts()})
    except BaseException:
        unpatch_(model)
        raise
    spread = BandedModel(_AXES[axis], links, report.book)
    spread.shares_attention = not options.reproducible
    spread.overlap = options.overlap
    put_on_bands(model, spread)
    return Shards(model, report, parts, spread, weights)


def unshard_(shards: Shards) -> None:
    """Take back what `shard_` did, on every rank."""
    shards.close()
    unpatch_(shards.model)


def _stated(options: Options) -> Facts:
    named = {field.name: getattr(options, field.name) for field in fields(options)}
    return {
        **environment_facts(),
        **{f"the option {name}": _word(value) for name, value in named.items()},
    }


def _word(value: Any) -> str:
    return value.value if isinstance(value, Backend) else str(value)


def _group(mesh: Any) -> Any:
    if not dist.is_initialized():
        raise UnsupportedError(
            "no process group: start ranks with torchrun, and call"
            " torch.distributed.init_process_group first."
        )
    if not hasattr(mesh, "get_group"):
        return dist.group.WORLD if mesh is None else mesh
    if mesh.ndim != 1:
        raise UnsupportedError(
            f"a mesh with axes {mesh.mesh_dim_names}: take one of them, mesh[name]."
        )
    return mesh.get_group()


def _linked(group: Any, options: Options) -> Links:
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    members = "-".join(map(str, dist.get_process_group_ranks(group)))
    _times[members] += 1
    store = distributed_c10d.PrefixStore(
        f"trnconv/{members}/{_times[members]}",
        distributed_c10d._get_default_store(),  # noqa: SLF001 (the group's; there is no other)
    )
    watch = Watch(store, rank, ranks, min(PATIENCE_S, options.timeout_s / 2))
    links = Links(group, rank, ranks, offered(group, options.exchange), options.timeout_s, watch)
    links.barrier()
    watch.start()
    links.agreement = Agreement(store, watch, ranks, options.timeout_s)
    return links


def _require_untiled(model: nn.Module) -> None:
    if getattr(model, "use_tiling", False):
        raise UnsupportedError(
            f"{type(model).__name__} with tiling of its own: tiles and bands exclude each other."
            " Call disable_tiling() first; bands need less memory too."
        )


def _require_taken(model: nn.Module, report: PatchReport, cut: int) -> None:
    kept = [entry for entry in report.kept if len(entry.weight) > 3 and entry.weight[cut - 3] > 1]
    if kept:
        raise UnsupportedError(
            f"{kept[0].name}: {kept[0].reason} It reads other {NAMES[cut]}, and torch's own"
            " convolution cannot fetch them."
        )
    for name, module in model.named_modules():
        if isinstance(module, _TRANSPOSED) and module.kernel_size[cut - 3] > 1:
            raise UnsupportedError(
                f"{name}: a transposed convolution over {NAMES[cut]} is not done in bands. Cut the"
                " other axis, or run the model on one rank."
            )


def put_on_bands(model: nn.Module, spread: BandedModel) -> None:
    """Give every part of a patched model the methods for bands."""
    ours: dict[Callable[..., Any], Callable[..., Any]] = {
        module_forward: banded_forward,
        convolution_forward: banded_convolution_forward,
    }
    for module in model.modules():
        patch: Patch | None = module.__dict__.get(ATTRIBUTE)
        if patch is None:
            continue
        patch.around.spread = spread
        patch.around.within = partial(LazyBands, spread)
        for method in patch.methods:
            bound = module.__dict__[method]
            if type(bound) is Bound and bound.function in ours:
                module.__dict__[method] = Bound(ours[bound.function], module, method)
