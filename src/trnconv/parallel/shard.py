"""shard_ and unshard_: a model on several ranks, each with a band of one video."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from trnconv.errors import ShapeError, UnsupportedError
from trnconv.parallel.agreement import Facts, WeightDigests, video_facts
from trnconv.parallel.banded_model import BandedModel
from trnconv.parallel.bands import Bands
from trnconv.parallel.comm import cut_out
from trnconv.parallel.comm_group import DEFAULT, Options, connect
from trnconv.parallel.forward import LazyBands, banded_convolution_forward, banded_forward
from trnconv.parallel.grid import NAMES, BandGrid, MeshCut
from trnconv.parallel.mesh import Shares, cut_by, mesh_of, shares_of
from trnconv.parallel.overlap import OVERLAPS, LinkedCore
from trnconv.parallel.placement import as_shards, bands_of
from trnconv.parallel.traffic import Traffic, TrafficKind
from trnconv.pytorch.patching import PatchReport, patch_, unpatch_
from trnconv.pytorch.patching.methods import (
    ATTRIBUTE,
    Bound,
    Patch,
    convolution_forward,
    module_forward,
)

Tensor = torch.Tensor
_TRANSPOSED = (nn.ConvTranspose2d, nn.ConvTranspose3d)


@dataclass(frozen=True)
class Shards:
    """A model in bands, on one rank."""

    model: nn.Module
    report: PatchReport
    shares: Shares
    spread: BandedModel
    weights: WeightDigests
    mesh: DeviceMesh | None = None  # of the ranks; None if a process group was given
    checks_values: bool = True  # whether `split` compares values over ranks

    @property
    def rank(self) -> int:
        """Among those that share the video."""
        return self.spread.comm.rank

    @property
    def traffic(self) -> Traffic:
        """What this rank received since the model was sharded."""
        return self.spread.comm.traffic

    @property
    def gathering(self) -> tuple[str, ...]:
        """Modules that ran on whole tensors so far: every rank does all of their own work."""
        return tuple(sorted(self.spread.gathering))

    def split(self, whole: Tensor, unit: int = 1) -> Tensor:
        """This rank's band of a video or latent that every rank has; it starts a new video.

        Bounds are multiples of `unit` rows: for pixels that are to be encoded, of the pixels of one
        latent row, so that the bands of every resolution are exact multiples of each other.

        Ranks must have the same values; a checksum of them is compared, unless
        `Options.check_values` is off.

        Of a DTensor that is sharded over the mesh along the axes that are cut, it is the local
        shard: nothing is sent, and `shares` are not looked at.
        """
        dims = self._dims(whole)
        if isinstance(whole, DTensor):
            shards = bands_of(whole, self.mesh, self.spread.cut, unit)
            self._begin(shards, {"the video": f"a DTensor {tuple(whole.shape)} {whole.dtype}"})
            return whole.to_local()
        grid = BandGrid(
            tuple(
                Bands.shared(whole.shape[dim], shares, unit)
                for dim, shares in zip(dims, self.shares, strict=True)
            )
        )
        self._begin(grid, video_facts(whole, with_values=self.checks_values))
        return cut_out(whole, dims, grid.whole, grid.of(self.rank)).contiguous()

    def begin(self, *bands: Bands) -> None:
        """Say what the next band is a band of, along each axis that is cut, without `split`."""
        counts = tuple(along.ranks for along in bands)
        if counts != self.spread.cut.counts:
            raise ShapeError(
                f"{' x '.join(map(str, counts))} bands for"
                f" {' x '.join(map(str, self.spread.cut.counts))} ranks: one for each is needed."
            )
        self._begin(BandGrid(bands), {"the video": "bands"})

    def _begin(self, grid: BandGrid, video: Facts) -> None:
        bounds = " x ".join(str(bands.bounds) for bands in grid.bands)
        facts = {**video, "the bounds of bands": bounds}
        self.spread.comm.state("the next video", {**facts, "the weights": self.weights.digest()})
        self.spread.begin(grid)

    def whole(self, band: Tensor) -> Tensor:
        """The bands of all ranks joined, on every rank."""
        dims = self._dims(band)
        self.spread.comm.module = ""
        return self.spread.comm.gather(band, dims, self.spread.grid(band.shape), TrafficKind.result)

    def as_dtensor(self, band: Tensor) -> DTensor:
        """The bands of all ranks as the shards of one DTensor: nothing is sent."""
        self._dims(band)
        return as_shards(band, self.mesh, self.spread.cut, self.spread.grid(band.shape))

    def close(self) -> None:
        """Stop to count as alive. All ranks together, when no more messages are to come."""
        self.spread.comm.close()

    def __str__(self) -> str:
        """What was sent, and what runs on whole tensors."""
        cut = self.spread.cut
        count = " x ".join(map(str, cut.counts))
        lines = [f"bands of {cut.names}, rank {self.rank} of {count}"]
        lines += [f"{name} runs on whole tensors, on every rank" for name in self.gathering]
        return "\n".join([*lines, "received:", str(self.traffic)])

    def _dims(self, tensor: Tensor) -> tuple[int, ...]:
        if tensor.dim() not in (4, 5):
            raise ShapeError(
                f"a tensor of shape {tuple(tensor.shape)}: videos are (batch, channels, frames,"
                " height, width), images have no frames."
            )
        return self.spread.cut.dims(tensor.dim())


def shard_(
    model: nn.Module,
    mesh: Any = None,
    axis: Literal["rows", "columns"] = "rows",
    shares: Sequence[Any] | None = None,
    options: Options = DEFAULT,
    dims: Sequence[Literal["height", "width"]] | None = None,
) -> Shards:
    """Patch a model to run on bands of a video, one on each rank of a group.

    `mesh` is a `DeviceMesh` of one axis (`mesh["name"]` of a larger one), a process group, or None
    for all ranks; `axis` is cut. Or it is a `DeviceMesh` of which each axis cuts one of `dims`:
    with `dims=("height", "width")` ranks hold rectangles. Every rank calls this, and then the
    model, with bands that `split` cut; results are bands, which `whole` joins. `shares` are the
    parts of the video, in proportion (with `dims`, a sequence for each); equal ones if not given.
    """
    group, cut = cut_by(mesh, axis, dims)
    parts = shares_of(cut, shares, is_flat=dims is None)
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
        _require_taken(model, report, cut)
        weights = WeightDigests(model)
        said = {"the cut": str(cut), "shares": str(parts), **weights.facts()}
        comm = connect(group, options, type(model).__name__, said)
    except BaseException:
        unpatch_(model)
        raise
    spread = BandedModel(cut, comm, report.stats)
    spread.shares_attention = not options.reproducible
    spread.overlap, spread.instance = options.overlap, LinkedCore.here()
    put_on_bands(model, spread)
    ranks_mesh = mesh_of(mesh)
    return Shards(model, report, parts, spread, weights, ranks_mesh, options.check_values)


def unshard_(shards: Shards) -> None:
    """Take back what `shard_` did, on every rank."""
    shards.close()
    unpatch_(shards.model)


def _require_untiled(model: nn.Module) -> None:
    if getattr(model, "use_tiling", False):
        raise UnsupportedError(
            f"{type(model).__name__} with tiling of its own: tiles and bands exclude each other."
            " Call disable_tiling() first; bands need less memory too."
        )


def _require_taken(model: nn.Module, report: PatchReport, cut: MeshCut) -> None:
    for axis in cut.axes:
        at, name = axis - 3, NAMES[axis]
        kept = [
            entry
            for entry in report.left_to_torch
            if len(entry.weight) > 3 and entry.weight[at] > 1
        ]
        if kept:
            raise UnsupportedError(
                f"{kept[0].name}: {kept[0].reason} It reads other {name}, and torch's own"
                " convolution cannot fetch them."
            )
        for place, module in model.named_modules():
            if isinstance(module, _TRANSPOSED) and module.kernel_size[at] > 1:
                raise UnsupportedError(
                    f"{place}: a transposed convolution over {name} is not done in bands. Cut the"
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
        patch.context.spread = spread
        patch.context.within = partial(LazyBands, spread)
        for method in patch.methods:
            bound = module.__dict__[method]
            if type(bound) is Bound and bound.function in ours:
                module.__dict__[method] = Bound(ours[bound.function], module, method)
