"""Records of shards, and the manifest they make."""

from dataclasses import replace

import pytest

from trnconv.corpus.clips import Clip
from trnconv.corpus.records import BadClip, EncodedClip, ShardRecord, manifest
from trnconv.corpus.shards import Shard
from trnconv.errors import TrnconvError


def record(name="000000", weights="w1"):
    return ShardRecord(
        shard=name,
        file=f"shards/{name}.safetensors",
        file_bytes=100,
        sha256="f" * 64,
        weights_sha256=weights,
        clips=(EncodedClip(f"a{name}", "s3://a", "64x64x9", {"mode": [16, 3, 8, 8]}, "c" * 64),),
        bad=(BadClip(f"b{name}", "s3://b", "no video stream"),),
    )


def test_a_record_is_read_back_and_has_one_form():
    assert ShardRecord.from_json(record().to_json()) == record()
    assert record().to_json() == record().to_json()


def test_a_record_covers_the_shard_whose_clips_all_ended():
    both = (Clip("b000000", "s3://b"), Clip("a000000", "s3://a"))
    assert record().covers(Shard("000000", both))
    assert not record().covers(Shard("000000", both[:1]))
    assert not record().covers(Shard("000000", (*both, Clip("c", "s3://c"))))


def test_a_manifest_counts_and_lists_whatever_the_order():
    records = [record("000001"), record("000000")]
    made = manifest({"fps": 16}, records)
    assert made == manifest({"fps": 16}, reversed(records))
    assert (made["clips"], made["bytes"], made["settings"]) == (2, 200, {"fps": 16})
    assert [shard["clips"] for shard in made["shards"]] == [["a000000"], ["a000001"]]
    assert [bad["id"] for bad in made["bad"]] == ["b000000", "b000001"]


def test_shards_of_two_sets_of_weights_make_no_manifest():
    with pytest.raises(TrnconvError, match="2 different sets of weights"):
        manifest({}, [record(), replace(record("000001"), weights_sha256="w2")])
