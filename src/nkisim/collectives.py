"""The `nki.collectives` namespace: known by name and refused, because nkisim has one device."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from nkisim.errors import refuse
from nkisim.public_calls import open_namespace
from nkisim.refusal import refused
from nkisim.tensors.registers import NKIObject
from nkisim.tensors.tensor import NkiTensor

__all__ = [
    "ReplicaGroup",
    "all_gather",
    "all_gather_v",
    "all_reduce",
    "all_to_all",
    "all_to_all_v",
    "collective_permute",
    "collective_permute_implicit",
    "collective_permute_implicit_current_processing_rank_id",
    "collective_permute_implicit_reduce",
    "rank_id",
    "reduce_scatter",
    "reduce_scatter_v",
]

Tensors = list[NkiTensor]

_REASON: Final = "nkisim simulates one device: at most two cores that share HBM, and no other ranks"
_REMEDY: Final = (
    "run the parts around the collective as kernels of their own and exchange arrays on the host;"
    " between the two cores of one device use nisa.sendrecv"
)


@dataclass
class ReplicaGroup(NKIObject):
    """Ranks that take part in a collective: disjoint lists of rank numbers."""

    replica_groups: Sequence[Sequence[int]]

    def __post_init__(self) -> None:
        ranks = [rank for group in self.replica_groups for rank in group]
        if len(set(ranks)) != len(ranks):
            refuse(
                "ncc.ReplicaGroup",
                f"groups {list(self.replica_groups)} name a rank twice",
                "a rank belongs to one group",
                "make the groups disjoint",
            )


@refused("ncc.all_reduce", _REASON, _REMEDY)
def all_reduce(
    srcs: Tensors,
    dsts: Tensors,
    replica_group: ReplicaGroup,
    op: Any,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """dst = op over the ranks' src."""


@refused("ncc.all_gather", _REASON, _REMEDY)
def all_gather(
    srcs: Tensors,
    dsts: Tensors,
    replica_group: ReplicaGroup,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """dst = the ranks' src, one after the other."""


@refused("ncc.all_gather_v", _REASON, _REMEDY)
def all_gather_v(
    srcs: Tensors,
    dsts: Tensors,
    replica_group: ReplicaGroup,
    metadata_tensor: NkiTensor,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """all_gather of as many elements as a tensor says."""


@refused("ncc.reduce_scatter", _REASON, _REMEDY)
def reduce_scatter(
    srcs: Tensors,
    dsts: Tensors,
    replica_group: ReplicaGroup,
    collective_dim: int,
    op: Any,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """dst = this rank's part of op over the ranks' src."""


@refused("ncc.reduce_scatter_v", _REASON, _REMEDY)
def reduce_scatter_v(*args: Any, **kwargs: Any) -> None:
    """reduce_scatter of as many elements as a tensor says; its parameters are not published."""


@refused("ncc.all_to_all", _REASON, _REMEDY)
def all_to_all(
    srcs: Tensors,
    dsts: Tensors,
    replica_group: ReplicaGroup,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """dst = this rank's part of every rank's src."""


@refused("ncc.all_to_all_v", _REASON, _REMEDY)
def all_to_all_v(
    srcs: Tensors,
    dsts: Tensors,
    replica_group: ReplicaGroup,
    metadata_tensor: NkiTensor,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """all_to_all of as many elements as a tensor says."""


@refused("ncc.collective_permute", _REASON, _REMEDY)
def collective_permute(
    srcs: Tensors,
    dsts: Tensors,
    source_target_pairs: Any,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """Send src to another rank's dst, by pairs of ranks."""


@refused("ncc.collective_permute_implicit", _REASON, _REMEDY)
def collective_permute_implicit(
    srcs_by_channel: list[Tensors],
    dsts_by_channel: list[Tensors],
    replica_group: ReplicaGroup,
    channel_ids: list[int] = [0],  # noqa: B006 (NKI's default)
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """Send src to the next rank of a ring that the runtime chooses."""


@refused("ncc.collective_permute_implicit_reduce", _REASON, _REMEDY)
def collective_permute_implicit_reduce(
    srcs0_by_channel: list[Tensors],
    srcs1_by_channel: list[Tensors],
    dsts_by_channel: list[Tensors],
    replica_group: ReplicaGroup,
    op: Any,
    channel_ids: list[int] = [0],  # noqa: B006 (NKI's default)
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """Send op of two sources to the next rank of a ring."""


@refused("ncc.collective_permute_implicit_current_processing_rank_id", _REASON, _REMEDY)
def collective_permute_implicit_current_processing_rank_id(
    iteration_id: Any, replica_group: ReplicaGroup, channel_id: int = 0, name: str | None = None
) -> None:
    """The rank whose data a ring step holds."""


@refused("ncc.rank_id", _REASON, _REMEDY)
def rank_id(name: str | None = None) -> None:
    """This rank's number."""


open_namespace(sys.modules[__name__], "ncc", {})
