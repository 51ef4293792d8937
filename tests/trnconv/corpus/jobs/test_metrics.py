"""Metrics: sums and rates of each worker."""

import json

import pytest

from trnconv.corpus.jobs.metrics import ShardMetrics, Stopwatch, by_worker, shared


def metrics(shard, worker, seconds):
    return ShardMetrics(
        shard=shard,
        worker=worker,
        clips=4,
        bad=1,
        frames=36,
        pixels=2_000_000,
        file_bytes=10,
        started=0.0,
        seconds=seconds,
        cpu_s=seconds / 5,
        waiting_s=seconds / 4,
        encoding_s=seconds / 2,
        writing_s=seconds / 8,
        shapes=int(shard),
    )


def test_a_workers_shards_are_summed():
    first, second = by_worker([metrics("1", "b", 2), metrics("2", "a", 1), metrics("3", "b", 6)])
    assert (first.worker, second.worker, second.shards, second.bad) == ("a", "b", 2, 2)
    assert second.clips_per_s == pytest.approx(8 / 8)
    assert second.megapixels_per_s == pytest.approx(4 / 8)
    assert (second.waiting, second.encoding, second.writing) == pytest.approx((1 / 4, 1 / 2, 1 / 8))
    assert (second.cpu, second.shapes) == (pytest.approx(1 / 5), 3)


def test_a_shard_of_several_workers_is_one_and_each_has_its_share():
    whole = shared([metrics("1", "b", 2), metrics("1", "a", 1), metrics("1", "b", 6)])
    assert (whole.worker, whole.clips, whole.seconds) == ("2 workers", 12, 9)
    assert [(one.worker, one.clips, one.seconds) for one in whole.shares] == [
        ("a", 4, 1),
        ("b", 8, 8),
    ]
    assert by_worker([whole]) == by_worker(whole.shares)


def test_metrics_are_json_with_all_shares():
    said = json.loads(shared([metrics("7", "a", 2.5), metrics("7", "b", 1.5)]).to_json())
    assert (said["shard"], said["seconds"], said["bad"]) == ("7", 4.0, 2)
    assert [share["worker"] for share in said["shares"]] == ["a", "b"]


def test_a_stopwatch_counts_by_name_also_when_the_work_fails():
    watch = Stopwatch()
    for what in ("a", "a", "b"):
        with pytest.raises(KeyError), watch.on(what):
            raise KeyError
    assert set(watch.spent) == {"a", "b"}
    assert all(seconds > 0 for seconds in watch.spent.values())
