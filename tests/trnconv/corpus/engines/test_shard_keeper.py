"""Keepers: a shard whose clips end in any order, in many hands, some of which die."""

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations

import pytest

from trnconv.corpus import Buckets, EncoderSettings, Job, Picture
from trnconv.corpus.engines.shard_keeper import ShardKeeper
from trnconv.corpus.jobs.metrics import ShardMetrics
from trnconv.corpus.latents.clip_latents import ClipLatents
from trnconv.corpus.shards.plan import extend, read_plan
from trnconv.corpus.shards.records import ShardRecord
from trnconv.corpus.videos.clips import clip_of
from trnconv.corpus.videos.video_reader import Window
from trnconv.errors import TrnconvError

pytestmark = pytest.mark.ray

CLIPS = 5
WEIGHTS = "0" * 64


@pytest.fixture
def job(tmp_path):
    settings = EncoderSettings(model="wan2.1", reduced=True)
    return Job(out=str(tmp_path), encoder=settings, buckets=Buckets((Picture(32, 32),), (5, 9)))


def planned(job, clips=CLIPS, per_shard=CLIPS):
    plan, _ = extend(
        read_plan(job.folder), [clip_of(f"/videos/{number}") for number in range(clips)], per_shard
    )
    (segment,) = plan.segments
    return segment


def latents(name):
    """Values that only depend on the clip, of one of two buckets."""
    import torch

    seed = int(name[:8], 16)
    values = torch.rand((2, 3), generator=torch.Generator().manual_seed(seed))
    window = Window(9 if seed % 2 else 5, Picture(32, 32), 0.0)
    return ClipLatents(name, ((window, {"mean": values, "logvar": -values}),), 16.0, 7, "b" * 64)


def part(worker="w", shard="00000000"):
    counts = {"clips": 1, "bad": 0, "frames": 9, "pixels": 9, "file_bytes": 1, "shapes": 1}
    seconds = dict.fromkeys(
        ("started", "seconds", "cpu_s", "waiting_s", "encoding_s", "writing_s"), 1.0
    )
    return ShardMetrics(shard=shard, worker=worker, **counts, **seconds)


def done(keeper, names, number=0):
    for name in names:
        assert keeper.begin(number, name) == ""
        keeper.end(number, latents(name), part(), WEIGHTS)


def lasting(job, tmp_path):
    return {
        str(path.relative_to(tmp_path)): path.read_bytes()
        for kind in ("shards", "records")
        for path in (tmp_path / kind).rglob("*.*")
    }


def test_what_is_committed_does_not_depend_on_the_order(job, tmp_path):
    segment = planned(job)
    found = []
    for order in list(permutations(range(CLIPS)))[::31]:
        keeper = ShardKeeper(job, 1)
        clips = keeper.clips(segment, 0, 0, CLIPS)
        done(keeper, [clips[at].id for at in order])
        (metrics,) = keeper.settle()
        assert (metrics.clips, metrics.worker) == (CLIPS, "w")
        found.append(lasting(job, tmp_path))
        (tmp_path / "records/000000/00000000.json").unlink()
    assert all(one == found[0] for one in found)
    record = ShardRecord.from_json(found[0]["records/000000/00000000.json"])
    assert [row.id for row in record.clips] == [clip.id for clip in clips]


def test_a_shard_is_asked_for_in_parts_and_is_done_when_all_have_ended(job, tmp_path):
    segment = planned(job)
    keeper = ShardKeeper(job, 2)
    clips = keeper.clips(segment, 0, 0, 3)
    done(keeper, [clip.id for clip in clips])
    assert (len(clips), lasting(job, tmp_path), keeper.reports()) == (3, {}, [])
    rest = keeper.clips(segment, 0, 3, CLIPS)
    keeper.end(0, ClipLatents(rest[0].id, reason="too short"), part("v"), WEIGHTS)
    done(keeper, [rest[1].id])
    (metrics,) = keeper.settle()
    assert [share.worker for share in metrics.shares] == ["v", "w"]
    record = ShardRecord.from_json(lasting(job, tmp_path)["records/000000/00000000.json"])
    assert [(bad.id, bad.reason) for bad in record.bad] == [(rest[0].id, "too short")]
    assert not list((tmp_path / "spool").iterdir())
    assert not job.folder.sizes("leases/000000")
    assert json.loads((tmp_path / "metrics/000000/00000000.json").read_text())["clips"] == CLIPS


def test_a_clip_in_the_hands_of_three_who_died_is_not_tried_a_fourth_time(job):
    keeper = ShardKeeper(job, 1)
    clip, *_ = keeper.clips(planned(job), 0, 0, CLIPS)
    assert [keeper.begin(0, clip.id) for _ in range(4)] == [
        *[""] * 3,
        "3 workers died while they encoded it",
    ]


def test_what_has_ended_is_not_begun_again_and_kept_once(job):
    keeper = ShardKeeper(job, 1)
    clips = keeper.clips(planned(job), 0, 0, CLIPS)
    done(keeper, [clips[0].id])
    assert keeper.begin(0, clips[0].id) is None
    keeper.end(0, latents(clips[0].id), part(), WEIGHTS)
    done(keeper, [clip.id for clip in clips[1:]])
    (metrics,) = keeper.settle()
    assert metrics.clips == CLIPS


def test_many_hands_at_once_commit_once(job, tmp_path):
    segment = planned(job, 60, 20)
    keeper = ShardKeeper(job, 8)
    work = [
        (number, clip.id) for number in range(3) for clip in keeper.clips(segment, number, 0, 20)
    ]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda one: done(keeper, [one[1]], one[0]), work))
    assert len(keeper.settle()) == 3
    assert len(list((tmp_path / "records/000000").iterdir())) == 3


def test_a_shard_of_another_or_one_that_is_done_has_no_clips_here(job):
    segment = planned(job)
    first, second = ShardKeeper(job, 1), ShardKeeper(job, 1)
    clips = first.clips(segment, 0, 0, CLIPS)
    assert second.clips(segment, 0, 0, CLIPS) == ()
    assert second.begin(0, clips[0].id) is None  # as for a keeper that was started again
    second.end(0, latents(clips[0].id), part(), WEIGHTS)
    done(first, [clip.id for clip in clips])
    first.settle()
    assert ShardKeeper(job, 1).clips(segment, 0, 0, CLIPS) == ()


def test_a_shard_that_is_not_whole_in_the_end_is_given_back(job, tmp_path):
    segment = planned(job)
    keeper = ShardKeeper(job, 1)
    clips = keeper.clips(segment, 0, 0, CLIPS)
    done(keeper, [clip.id for clip in clips[1:]])
    assert keeper.settle() == []
    assert not list((tmp_path / "spool").iterdir())
    assert keeper.clips(segment, 0, 0, CLIPS) == clips
    assert [keeper.begin(0, clips[0].id) for _ in range(3)] == [""] * 3  # nobody is blamed


def test_processes_that_are_started_again_for_ever_are_refused_in_words(job):
    keeper = ShardKeeper(job, 2)
    for _ in range(102):
        keeper.join()
    with pytest.raises(TrnconvError, match="103 workers have started, and 2 would do"):
        keeper.join()
    segment = planned(job)
    for _ in range(101):
        keeper.clips(segment, 0, 0, CLIPS)
    with pytest.raises(TrnconvError, match="102 decoders of shard 0 from clip 0 on"):
        keeper.clips(segment, 0, 0, CLIPS)


def test_a_commit_that_fails_is_said_and_leaves_no_record(job, tmp_path, monkeypatch):
    keeper = ShardKeeper(job, 1)
    clips = keeper.clips(planned(job), 0, 0, CLIPS)

    def full(spool):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("trnconv.corpus.latents.spool.Spool.put", full)
    done(keeper, [clip.id for clip in clips])
    with pytest.raises(TrnconvError, match="No space left on device"):
        keeper.settle()
    assert lasting(job, tmp_path) == {}
