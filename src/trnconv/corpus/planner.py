"""Who plans: one process at a time, and of those that are started together, the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic, sleep, time

from trnconv.corpus.jobs.job import Job
from trnconv.corpus.jobs.metrics import worker_name
from trnconv.corpus.jobs.torchrun import Rank
from trnconv.corpus.shards.again import Retry, reopen_set_aside
from trnconv.corpus.shards.completion import reopen_damaged
from trnconv.corpus.shards.plan import Changed, CorpusPlan, extend, read_plan
from trnconv.corpus.shards.verification import Verified, remove_damaged
from trnconv.corpus.storage.document import as_document, read_document
from trnconv.corpus.storage.leases import Lease, claim
from trnconv.corpus.storage.process import started_at
from trnconv.corpus.videos.listing import find_clips
from trnconv.errors import TrnconvError

_RANK_0_S = 60.0  # that other ranks wait for it to have planned, or to be at it
_LOOK_S = 0.5  # between two looks for what another process does
_PATIENCE_S = 86_400.0  # a listing of a billion names takes hours


@dataclass(frozen=True)
class Planned:
    """A plan, and what was found in making it."""

    plan: CorpusPlan
    changed: Changed
    verified: Verified


@dataclass(frozen=True)
class Mark:
    """That a launch has planned."""

    planned: float  # seconds since 1970, when it was done


def planned(job: Job, sources: Sequence[str], clips_per_shard: int, place: Rank) -> Planned:
    """The plan of the sources as they are now; made here, or by a process started with this one."""
    mark = f"plan/launches/{place.launch or 'unnamed'}.json"
    lease = _lease(job, place, mark)
    if lease is None:
        return Planned(read_plan(job.folder), Changed(), Verified())
    with lease.held():
        plan, changed = extend(read_plan(job.folder), find_clips(sources), clips_per_shard)
        reopen_damaged(plan)
        verified = remove_damaged(plan) if job.terms.verify else Verified()
        reopen_set_aside(plan, Retry(job.terms.retry, job.limits.deaths))
        if place.world > 1:
            job.folder.write(mark, as_document(Mark(time())))
    return Planned(plan, changed, verified)


def _lease(job: Job, place: Rank, mark: str) -> Lease | None:
    """The task to plan; None when somebody of this launch has planned since this rank began.

    That is rank 0's, but a rank that begins late, or waits for a rank 0 that does not come, plans
    as well: whoever plans again finds nothing new. An older mark is that of an earlier launch.
    """
    begun, end = started_at(), monotonic() + _PATIENCE_S
    first = monotonic() + (_RANK_0_S if place.rank else 0)
    while True:
        made = read_document(Mark, job.folder.read(mark)) if place.rank else None
        if made is not None and made.planned >= begun:
            return None
        if monotonic() >= first and (lease := claim(job.folder, "plan", worker_name())):
            return lease
        _pause(end, job)


def _pause(end: float, job: Job) -> None:
    if monotonic() > end:
        raise TrnconvError(
            f"{job.out}: no plan after {_PATIENCE_S / 3600:.0f} hours of waiting for another"
            " process that makes it. See whether rank 0 is alive."
        )
    sleep(_LOOK_S)
