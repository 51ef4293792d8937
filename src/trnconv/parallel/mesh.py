"""A mesh of ranks: which process group shares a video, and which axes of it each dimension cuts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from trnconv.errors import ShapeError, UnsupportedError
from trnconv.parallel.grid import COLUMNS, ROWS, MeshCut

AXES = {"rows": ROWS, "columns": COLUMNS}
DIMENSIONS = {"height": ROWS, "width": COLUMNS}
Shares = tuple[tuple[float, ...], ...]  # of the ranks along each axis that is cut


def cut_by(mesh: Any, axis: str, dims: Sequence[str] | None) -> tuple[Any, MeshCut]:
    """The group, and what its ranks cut: one axis, or one for each dimension of a mesh."""
    if not dist.is_initialized():
        raise UnsupportedError(
            "no process group: start ranks with torchrun, and call"
            " torch.distributed.init_process_group first."
        )
    if dims is None:
        if axis not in AXES:
            raise UnsupportedError(f"axis={axis!r}: rows or columns.")
        group = _group_of_one(mesh)
        return group, MeshCut((AXES[axis],), (dist.get_world_size(group),))
    named = list(dims)
    if not set(named) <= set(DIMENSIONS) or len(set(named)) < len(named):
        raise UnsupportedError(f"dims={tuple(dims)}: height, width, or both, each once.")
    if getattr(mesh, "ndim", 0) != len(named):
        raise UnsupportedError(
            f"dims={tuple(dims)} needs a DeviceMesh with {len(named)} dimensions, one for each:"
            " torch.distributed.device_mesh.init_device_mesh makes one."
        )
    return _group_of_all(mesh), MeshCut(tuple(DIMENSIONS[dim] for dim in named), tuple(mesh.shape))


def mesh_of(mesh: Any) -> DeviceMesh | None:
    """What was given, if it is a mesh."""
    return mesh if isinstance(mesh, DeviceMesh) else None


def shares_of(cut: MeshCut, shares: Sequence[Any] | None, *, is_flat: bool) -> Shares:
    """The parts of the video in proportion, along each axis; equal ones if none are given."""
    listed = [shares] if is_flat and shares is not None else shares
    proportions = [(1.0,) * count for count in cut.counts] if listed is None else listed
    if len(proportions) != len(cut.counts):
        raise ShapeError(f"shares for {len(proportions)} axes, of {len(cut.counts)} that are cut.")
    for parts, count in zip(proportions, cut.counts, strict=True):
        if len(parts) != count:
            raise ShapeError(f"{len(parts)} shares for {count} ranks: one for each is needed.")
    return tuple(tuple(parts) for parts in proportions)


def _group_of_one(mesh: Any) -> Any:
    if not hasattr(mesh, "get_group"):
        return dist.group.WORLD if mesh is None else mesh
    if mesh.ndim != 1:
        raise UnsupportedError(
            f"a mesh with axes {mesh.mesh_dim_names}: say what each of them cuts,"
            ' dims=("height", "width"), or take one of them, mesh[name].'
        )
    return mesh.get_group()


def _group_of_all(mesh: Any) -> Any:
    """One group of all ranks of a mesh, in the order of the mesh."""
    ranks = mesh.mesh.flatten().tolist()
    if ranks != sorted(ranks):
        raise UnsupportedError(
            f"a mesh of ranks {ranks}: ranks of one video must be in ascending order, row by row."
        )
    if mesh.ndim == 1:
        return mesh.get_group()
    if len(ranks) == dist.get_world_size():
        return dist.group.WORLD
    return dist.new_group(ranks, use_local_synchronization=True)
