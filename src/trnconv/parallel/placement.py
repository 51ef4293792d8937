"""DTensors in and out: shards of a `DeviceMesh` as bands, and bands as shards."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.tensor import DTensor, Shard

from trnconv.errors import ShapeError
from trnconv.parallel.bands import Bands
from trnconv.parallel.grid import BandGrid, MeshCut

Tensor = torch.Tensor


def placements(cut: MeshCut, dims: int) -> tuple[Shard, ...]:
    """Of a tensor with so many dimensions whose bands are shards: one for each axis of the mesh."""
    return tuple(Shard(dim) for dim in cut.dims(dims))


def shard_bands(total: int, ranks: int, unit: int = 1) -> Bands:
    """The bands that a DTensor has of so many rows: as torch.chunk cuts them.

    ShapeError if a rank has none, or bounds are no multiples of `unit` rows.
    """
    step = -(-total // ranks)
    bounds = (*(min(rank * step, total) for rank in range(ranks)), total)
    if any(bound % unit for bound in bounds):
        raise ShapeError(
            f"a DTensor with shards at {bounds}: bounds must be multiples of {unit}, the pixels of"
            " one latent row. Pass split(x.full_tensor(), unit) instead."
        )
    return Bands(bounds)


def bands_of(x: DTensor, mesh: Any, cut: MeshCut, unit: int) -> BandGrid:
    """The bands of all ranks, if the shards of x are bands of this mesh; else a ShapeError."""
    needed = placements(cut, x.dim())
    if mesh is None or x.device_mesh != mesh or tuple(x.placements) != needed:
        raise ShapeError(
            f"a DTensor placed {tuple(x.placements)} on {x.device_mesh}: {needed} on the DeviceMesh"
            " given to shard_ is needed. Call x.redistribute first, or pass x.full_tensor()."
        )
    counts = zip(cut.dims(x.dim()), cut.counts, strict=True)
    return BandGrid(tuple(shard_bands(x.shape[dim], ranks, unit) for dim, ranks in counts))


def as_shards(band: Tensor, mesh: Any, cut: MeshCut, grid: BandGrid) -> DTensor:
    """A DTensor whose shards are the bands; ShapeError if its shards would have other bounds."""
    dims = cut.dims(band.dim())
    sizes = list(band.shape)
    for dim, bands in zip(dims, grid.bands, strict=True):
        sizes[dim] = bands.total
        if mesh is None or shard_bands(bands.total, bands.ranks) != bands:
            where = "without a DeviceMesh" if mesh is None else f"with bounds {bands.bounds}"
            raise ShapeError(
                f"bands {where} as a DTensor: its shards are equal but for the last. Call"
                " shard_ with a DeviceMesh and without shares, or gather them with whole()."
            )
    whole = torch.Size(sizes)
    strides = torch.empty(whole, device="meta").stride()
    return DTensor.from_local(
        band.contiguous(), mesh, placements(cut, band.dim()), shape=whole, stride=strides
    )
