"""Records of shards, and the rows of the manifest that they make."""

import json
from dataclasses import replace

import pytest

from trnconv.corpus.shards.manifest import as_parquet, overview, read_rows, totals_of
from trnconv.corpus.shards.records import BadClip, EncodedWindow, LatentFile, ShardRecord
from trnconv.corpus.shards.shard import Shard
from trnconv.corpus.videos.clips import Clip
from trnconv.errors import TrnconvError

NOTE = json.dumps({"caption": "a cat", "score": 0.5})


def record(number=0, weights="w1", url="s3://a"):
    name = f"{number:08}"
    file = f"shards/000000/{name}-64x64x9-abc.safetensors"
    window = EncodedWindow(
        id=f"a{number}",
        key=f"a{number}",
        url=url,
        window=0,
        start_s=0.0,
        fps=16.0,
        bucket="64x64x9",
        file=file,
        shape=(16, 3, 8, 8),
        sha256="c" * 64,
        source_bytes=10,
        source_sha256="d" * 64,
        note=NOTE,
    )
    second = replace(window, key=f"a{number}.1", window=1, start_s=0.5625)
    return ShardRecord(
        shard=name,
        weights_sha256=weights,
        files=(LatentFile(file, "64x64x9", 100, "f" * 64),),
        clips=(window, second),
        bad=(BadClip(f"b{number}", "s3://b", "no video stream"),),
    )


def test_a_record_is_read_back_and_has_one_form():
    odd = record(url="/corpus/\udcff.mp4")
    assert ShardRecord.from_json(odd.to_json()) == odd
    assert record().to_json() == record().to_json()


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"{}",
        b"[]",
        b"[" * 100_000,
        b'{"shard": ' + b"[" * 100_000,
        record().to_json()[:-20],
        record().to_json().replace(b'"64x64x9"', b"7"),
        record().to_json().replace(b'"bad"', b'"worse"'),
        b"\xff\xfe",
    ],
)
def test_what_is_no_record_is_none(data):
    assert ShardRecord.from_json(data) is None


def test_a_record_covers_the_shard_whose_clips_all_ended():
    both = (Clip("b0", "s3://b"), Clip("a0", "s3://a"))
    assert record().covers(Shard(0, both))
    assert not record().covers(Shard(1, both))
    assert not record().covers(Shard(0, both[:1]))
    assert not record().covers(Shard(0, (*both, Clip("c", "s3://c"))))
    assert not replace(record(), files=()).covers(Shard(0, both))


@pytest.mark.ray
def test_a_segments_rows_have_what_a_trainer_asks_for():
    data = as_parquet([record(0), record(1, url="/corpus/\udcff.mp4")])
    assert data == as_parquet([record(0), record(1, url="/corpus/\udcff.mp4")])
    rows = read_rows(data)
    assert [row["key"] for row in rows] == ["a0", "a0.1", None, "a1", "a1.1", None]
    first, bad = rows[0], rows[2]
    assert (first["height"], first["width"], first["frames"]) == (64, 64, 9)
    assert (first["caption"], json.loads(first["metadata"])) == ("a cat", {"score": 0.5})
    assert (first["fps"], rows[1]["start_s"], first["shape"]) == (16.0, 0.5625, [16, 3, 8, 8])
    assert (bad["id"], bad["reason"], bad["file"]) == ("b0", "no video stream", None)
    assert rows[3]["url"] == "/corpus/\\xff.mp4"


def test_totals_are_summed_over_segments():
    totals = {
        "000001": totals_of([record(1000)], b"rows"),
        "000000": totals_of([record(0), record(1)], b"rows"),
    }
    made = overview({"fps": 16}, ("mean",), totals)
    assert (made["clips"], made["windows"], made["set_aside"]) == (3, 6, 3)
    assert (made["bytes"], made["buckets"]) == (300, {"64x64x9": 6})
    assert made["segments"] == ["manifest/000000.parquet", "manifest/000001.parquet"]


@pytest.mark.ray
@pytest.mark.parametrize("data", [b"", b"PAR1PAR1", b"cut"])
def test_a_file_that_is_no_manifest_is_refused_in_words(data):
    whole = as_parquet([record()])
    with pytest.raises(TrnconvError, match="cannot be read"):
        read_rows(whole[:-9] if data == b"cut" else data)


def test_shards_of_two_sets_of_weights_make_no_manifest():
    with pytest.raises(TrnconvError, match="2 different sets of weights"):
        totals_of([record(), record(1, weights="w2")], b"rows")
    totals = {str(n): totals_of([record(n, weights=f"w{n}")], b"rows") for n in (1, 2)}
    with pytest.raises(TrnconvError, match="2 different sets of weights"):
        overview({}, ("mean",), totals)
