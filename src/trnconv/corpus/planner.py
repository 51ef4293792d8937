"""Who plans: one process at a time, and of those that are started together, the first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from time import monotonic, sleep, time

from trnconv.corpus.completion import reopen_damaged
from trnconv.corpus.document import read_json
from trnconv.corpus.engines.torchrun import Rank
from trnconv.corpus.job import Job
from trnconv.corpus.leases import claim
from trnconv.corpus.listing import find_clips
from trnconv.corpus.metrics import worker_name
from trnconv.corpus.plan import Changed, CorpusPlan, extend, read_plan
from trnconv.errors import TrnconvError

_LOOK_S = 0.5  # between two looks for what another process does
_PATIENCE_S = 86_400.0  # a listing of a billion names takes hours


def planned(
    job: Job, sources: Sequence[str], clips_per_shard: int, place: Rank
) -> tuple[CorpusPlan, Changed]:
    """The plan of the sources as they are now; made here, or by the process that has this task."""
    mark = f"plan/launches/{place.launch}.json"
    if place.rank and _wait_for(job, place, mark):
        return read_plan(job.folder), Changed()
    end = monotonic() + _PATIENCE_S
    while (lease := claim(job.folder, "plan", worker_name())) is None:
        _pause(end, job)
    with lease.held():
        plan, changed = extend(read_plan(job.folder), find_clips(sources), clips_per_shard)
        reopen_damaged(plan)
    if place.launch:
        job.folder.write(mark, json.dumps({"planned": time()}).encode())
    return plan, changed


def _wait_for(job: Job, place: Rank, mark: str) -> bool:
    """Until rank 0 of this launch has planned; where launches have no name, until any plan is."""
    end = monotonic() + _PATIENCE_S
    while True:
        if place.launch and isinstance(read_json(job.folder.read(mark)), dict):
            return True
        if not place.launch and read_plan(job.folder).generations:
            return True
        _pause(end, job)


def _pause(end: float, job: Job) -> None:
    if monotonic() > end:
        raise TrnconvError(
            f"{job.out}: no plan after {_PATIENCE_S / 3600:.0f} hours of waiting for another"
            " process that makes it. See whether rank 0 is alive."
        )
    sleep(_LOOK_S)
