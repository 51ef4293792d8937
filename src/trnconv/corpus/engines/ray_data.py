"""Ray Data: rows are clips, which tasks decode on CPUs, and actors that hold a model encode.

Two stages, each with resources of its own. Tasks decode a few clips of one shard each, and hand
them on one by one, as blocks: how far they are ahead of the actors is Ray's backpressure. Clips go
to whatever actor is free. What is exactly once is a shard, and keepers answer for it: plain actors,
each for the shards of some numbers, which claim leases, collect latents and commit.

An actor that dies has lost the clip in its hands: Ray starts it again, so often and no more, and
the clip's pixels, which lie in Ray's store, go to the next one. A clip that was in the hands of
too many is set aside. A keeper that dies has lost its shards, and the next pass does them again.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from time import perf_counter, process_time
from typing import Any

from trnconv.corpus.engines.clip_row import ClipRow
from trnconv.corpus.engines.shard_keeper import ShardKeeper
from trnconv.corpus.jobs.job import Job
from trnconv.corpus.jobs.metrics import ShardMetrics, Stopwatch, now
from trnconv.corpus.jobs.worker import announce, job_encoder
from trnconv.corpus.latents.clip_latents import ClipLatents, clip_latents
from trnconv.corpus.latents.encoding import Encoder
from trnconv.corpus.shards.completion import close, open_shards
from trnconv.corpus.shards.plan import Segment
from trnconv.corpus.shards.shard import shard_name
from trnconv.corpus.storage.needs import needed_for
from trnconv.corpus.videos.decoder import DecodedVideo, Decoder
from trnconv.corpus.videos.video_reader import BadVideoError, VideoRequest
from trnconv.errors import TrnconvError
from trnconv.records import from_json, to_json

_LOOPBACK = "127.0.0.1"
_HERE = "local"  # Ray's word for a cluster that is started on this machine
_SEGMENTS = 2  # whose open shards are in a dataset: the driver holds no whole plan
_CLIPS_PER_TASK = 8  # of one shard: what Ray decodes again if a machine is lost
_WORKERS_PER_KEEPER = 8  # a keeper writes and hashes what so many encode
_CALLS = 16  # to a keeper at a time
_PROCESS_BYTES = 256 << 20  # of one that decodes, and has no torch
_COPIES = 3  # of a clip's pixels where it is decoded: the decoder's, a block's, and Ray's


@dataclass(frozen=True)
class Cluster:
    """Where actors run, and what each gets."""

    workers: int
    neuron_cores: int = 0
    address: str | None = None  # None: RAY_ADDRESS, or a cluster that is started here


@dataclass(frozen=True)
class Keepers:
    """Handles of the actors that keep shards."""

    actors: tuple[Any, ...]

    def ask(self, number: int, method: str, *about: Any) -> Any:
        """What the keeper of a shard answers; refusals in its words."""
        import ray

        actor = self.actors[number % len(self.actors)]
        try:
            return ray.get(getattr(actor, method).remote(*about))
        except ray.exceptions.RayTaskError as failed:
            if isinstance(failed.cause, TrnconvError):
                raise TrnconvError(str(failed.cause)) from failed
            raise


def decoded_clips(rows: Any, job: Job, keepers: Keepers) -> Iterator[Any]:
    """The clips of one task, as they are decoded; a refusal is a row, so that words stay words."""
    ((said,), (number,), (first,), (last,)) = (
        rows[name].to_pylist() for name in ("segment", "shard", "first", "last")
    )
    try:
        job.require_versions()  # another FFmpeg on this machine is refused here
        segment = from_json(Segment, json.loads(said))
        for clip in keepers.ask(number, "clips", segment, number, first, last):
            video = _decoded(clip.url, job.reading)
            yield ClipRow(number, clip.id, video).to_table()
    except TrnconvError as refusal:
        yield ClipRow(refusal=str(refusal)).to_table()


def _decoded(url: str, request: VideoRequest) -> DecodedVideo | BadVideoError:
    try:
        return _decoder(request).decode(url)
    except BadVideoError as bad:
        return bad


@cache
def _decoder(request: VideoRequest) -> Decoder:
    """Of this process of Ray's; its child ends when this process does."""
    return Decoder(request)


class ClipActor:
    """A model as Ray Data wants it: a class that is called with the row of one clip."""

    def __init__(self, job: Job, keepers: Keepers) -> None:
        self._job, self._keepers = job, keepers
        self._watch, self._since = Stopwatch(), (0.0, 0.0)

    def __call__(self, rows: Any) -> dict[str, list[Any]]:
        """Encode the clip and hand its latents to the keeper of its shard."""
        row = ClipRow.from_table(rows)
        refusal = row.refusal
        if not refusal:
            try:
                self._encode(row)
            except TrnconvError as refused:
                refusal = str(refused)
        return {"shard": [row.shard], "refusal": [refusal]}

    def _encode(self, row: ClipRow) -> None:
        encoder = self._encoder  # before a clip is in hand: who dies of the model blames none
        ended = self._ended(encoder, row)
        if ended is not None:
            part = self._part(row.shard, ended)
            with self._watch.on("writing"):  # counted with the next clip
                self._keepers.ask(row.shard, "end", row.shard, ended, part, encoder.weights_sha256)

    def _ended(self, encoder: Encoder, row: ClipRow) -> ClipLatents | None:
        """What comes of a clip; None if that is known already."""
        if isinstance(row.video, DecodedVideo):
            unsupported_shape = self._keepers.ask(row.shard, "begin", row.shard, row.id)
            if unsupported_shape is None:
                return None
            if unsupported_shape:
                return ClipLatents(row.id, reason=unsupported_shape)
        assert row.video is not None
        with self._watch.on("encoding"):
            return clip_latents(encoder, row.id, row.video)

    def _part(self, number: int, ended: ClipLatents) -> ShardMetrics:
        """This clip's part of its shard: the time since the last one's."""
        spent, (since, cpu_since) = self._watch.spent, self._since
        self._watch, self._since = Stopwatch(), (perf_counter(), process_time())
        seconds = self._since[0] - since
        return ShardMetrics(
            shard=shard_name(number),
            worker=self._name,
            clips=0 if ended.reason else 1,
            bad=1 if ended.reason else 0,
            frames=ended.frames,
            pixels=ended.pixels,
            file_bytes=sum(latent.nbytes for _, of in ended.windows for latent in of.values()),
            started=now() - seconds,
            seconds=seconds,
            cpu_s=self._since[1] - cpu_since,
            waiting_s=seconds - spent["encoding"] - spent["writing"],
            encoding_s=spent["encoding"],
            writing_s=spent["writing"],
            shapes=len(self._encoder.shapes),
        )

    @cached_property
    def _encoder(self) -> Encoder:
        """Made with the first clip, because Ray hides what is raised while an actor is made."""
        self._keepers.ask(0, "join")
        self._name = announce(self._job)
        encoder = job_encoder(self._job)
        self._since = (perf_counter(), process_time())
        return encoder


def run(job: Job, segments: Sequence[Segment], cluster: Cluster) -> Iterator[ShardMetrics]:
    """Encode what is open on a cluster; each shard's metrics as it is done."""
    with _connected(cluster, job.readers) as ray:
        keepers = _keepers(ray, job, cluster)
        for at in range(0, len(segments), _SEGMENTS):
            some = segments[at : at + _SEGMENTS]
            rows = [row for segment in some for row in _rows(job, segment)]
            if rows:
                yield from _encoded(ray, job, rows, cluster, keepers)
            for segment in some:
                if not open_shards(job.folder, segment):
                    close(job.folder, segment)


def _rows(job: Job, segment: Segment) -> Iterator[dict[str, Any]]:
    """What there is to decode, task by task."""
    said = json.dumps(to_json(segment))
    for shard in open_shards(job.folder, segment):
        for first in range(0, len(shard.clips), _CLIPS_PER_TASK):
            last = min(first + _CLIPS_PER_TASK, len(shard.clips))
            yield {"segment": said, "shard": shard.number, "first": first, "last": last}


def _encoded(
    ray: Any, job: Job, rows: list[dict[str, Any]], cluster: Cluster, keepers: Keepers
) -> Iterator[ShardMetrics]:
    try:
        for row in _dataset(ray, job, rows, cluster, keepers).iter_rows():
            if row["refusal"]:
                raise TrnconvError(row["refusal"])
            yield from keepers.ask(row["shard"], "reports")
        for number in range(len(keepers.actors)):
            yield from keepers.ask(number, "settle")
    except ray.exceptions.RayActorError as dead:
        raise TrnconvError(
            f"those who keep shards died too often: {str(dead).splitlines()[0]} Look at what ends"
            " them, and run the same command again; what is done stays done."
        ) from dead


def _dataset(
    ray: Any, job: Job, rows: list[dict[str, Any]], cluster: Cluster, keepers: Keepers
) -> Any:
    workers = min(cluster.workers, sum(row["last"] - row["first"] for row in rows))
    # A block is a clip: whatever has the pixels of the smallest one is handed on.
    ray.data.DataContext.get_current().target_max_block_size = job.reading.least_bytes
    decoded = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
        decoded_clips,
        fn_args=(job, keepers),
        batch_size=1,
        batch_format="pyarrow",
        compute=ray.data.TaskPoolStrategy(size=workers * job.readers),
        num_cpus=1,
        memory=_PROCESS_BYTES + _COPIES * job.reading.most_bytes,  # unequal needs are not fused
    )
    return decoded.map_batches(
        ClipActor,
        fn_constructor_args=(job, keepers),
        batch_size=1,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=workers),
        **_resources(cluster),
    )


def _keepers(ray: Any, job: Job, cluster: Cluster) -> Keepers:
    """They mostly wait for disks and stores, so they ask for no CPU."""
    kind = ray.remote(
        num_cpus=0, max_restarts=job.limits.deaths, max_task_retries=-1, max_concurrency=_CALLS
    )(ShardKeeper)
    count = -(-cluster.workers // _WORKERS_PER_KEEPER)
    return Keepers(tuple(kind.remote(job, cluster.workers) for _ in range(count)))


def _resources(cluster: Cluster) -> dict[str, Any]:
    """Ray sets NEURON_RT_VISIBLE_CORES for actors that ask for Neuron cores."""
    if cluster.neuron_cores:
        return {"num_cpus": 1, "resources": {"neuron_cores": cluster.neuron_cores}}
    return {"num_cpus": 1}


@contextmanager
def _connected(cluster: Cluster, readers: int) -> Iterator[Any]:
    """Ray, connected to the cluster named, else started here: on loopback, without a dashboard."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anyone
    address = cluster.address or os.environ.get("RAY_ADDRESS") or _HERE  # as Ray's own commands
    if address == _HERE:
        # Ray's switch for systems whose firewalls ask about every listener: loopback is this
        # machine's address then. Without it, Ray replaces 127.0.0.1 by an address others reach.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    with needed_for("engine ray"):
        import ray
        import ray.data

    quiet = {"log_to_driver": False, "logging_level": logging.WARNING}
    if address == _HERE:
        ray.init(
            address=_HERE,
            num_cpus=cluster.workers * (1 + readers) + 1,  # one more for Ray Data's own tasks
            include_dashboard=False,
            _node_ip_address=_LOOPBACK,
            **quiet,
        )
        _require_loopback(ray)
    else:
        _join(ray, address, quiet)
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    try:
        yield ray
    finally:
        ray.shutdown()


def _join(ray: Any, address: str, quiet: dict[str, Any]) -> None:
    """Connect to a cluster; a TrnconvError if there is none at the address."""
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise TrnconvError(
            f"no Ray cluster at {address}: {said[0]} The address is that of --ray-address, or of"
            f" RAY_ADDRESS in the environment. Start the cluster, or give --ray-address {_HERE} to"
            " have one started on this machine."
        ) from error


def _require_loopback(ray: Any) -> None:
    """Ray reads its switch when it is imported; who imported it before us has to be told."""
    at = ray.util.get_node_ip_address()
    if at != _LOOPBACK:
        ray.shutdown()
        raise TrnconvError(
            f"Ray on this machine would listen at {at}, for others to reach: it was imported before"
            " with RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER unset. Set it to 0 before Ray is imported."
        )
