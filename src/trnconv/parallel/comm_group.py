"""A group of ranks that share a video: how they are connected, and that they are alike."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from typing import Any, Literal

import torch.distributed as dist
from torch.distributed import distributed_c10d

from trnconv.parallel.agreement import Agreement, Facts, environment_facts
from trnconv.parallel.comm import Comm, exchange_kind
from trnconv.parallel.overlap import LinkedCore
from trnconv.parallel.watch import Watch
from trnconv.pytorch.backends.choice import Backend
from trnconv.pytorch.lazy.tensors.context import ALL_REWRITES, Rewrites

_times: Counter[str] = Counter()  # a group was connected, on this rank; equal on all of its ranks
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
    check_values: bool = True  # ranks compare a checksum of every video that all of them have


DEFAULT = Options()


def _stated(options: Options) -> Facts:
    named = {field.name: getattr(options, field.name) for field in fields(options)}
    return {
        **environment_facts(),
        "the machine": str(LinkedCore.here().machine.name),
        **{f"the option {name}": _word(value) for name, value in named.items()},
    }


def _word(value: Any) -> str:
    return value.value if isinstance(value, Backend) else str(value)


def connect(group: Any, options: Options, model: str, facts: Facts) -> Comm:
    """This rank among the others of a group, all with the same model and options."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    members = "-".join(map(str, dist.get_process_group_ranks(group)))
    _times[members] += 1
    store = distributed_c10d.PrefixStore(
        f"trnconv/{members}/{_times[members]}",
        distributed_c10d._get_default_store(),  # noqa: SLF001 (the group's; there is no other)
    )
    watch = Watch(store, rank, ranks, min(PATIENCE_S, options.timeout_s / 2))
    comm = Comm(
        group, rank, ranks, exchange_kind(group, options.exchange), options.timeout_s, watch
    )
    comm.barrier()
    watch.start()
    comm.agreement = Agreement(store, watch, ranks, options.timeout_s)
    try:
        comm.state("the model", {"the class": model, **_stated(options), **facts})
    except BaseException:
        watch.stop()
        raise
    return comm
