"""Files of a job that somebody else wrote, cut or nested: done again, or refused in words."""

import json
import shutil

import pytest

from corpus_videos import write_corpus
from trnconv.corpus import Buckets, EncoderSettings, Engine, Job, LatentDataset, Picture, start
from trnconv.corpus.storage.document import read_json
from trnconv.corpus.storage.store import Folder
from trnconv.errors import TrnconvError

pytestmark = pytest.mark.ray

HOSTILE = {
    "empty": b"",
    "nested": b"[" * 200_000,
    "nested objects": b'{"a":' * 100_000,
    "no text": b"\xff\xfe\x00",
    "a list": b"[1, 2]",
    "null": b"null",
    "wrong types": b'{"shard": 3, "clips": {"a": 1}, "number": "x", "segments": 7, "files": [3],'
    b' "encoder": [], "weights_sha256": {}, "format": [], "buckets": 3, "windows": "x"}',
    "a huge number": b"1" * 6_000,
    "a picture": b"\x89PNG\r\n\x1a\n" + bytes(64),
    "a Parquet file of nothing": b"PAR1" + bytes(32) + b"PAR1",
}
DONE_AGAIN = ("records/*/*.json", "manifest/*.json", "manifest/*.parquet")
HARMLESS = ("workers/*.json", "metrics/*/*.json")
REFUSED = ("job.json", "weights.json", "plan/*.json", "plan/segments/*.parquet")


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    write_corpus(folder, 2, lengths=(5, 5), height=32, width=32)
    return folder


def encode(videos, out):
    settings = EncoderSettings(model="wan2.1", reduced=True)
    job = Job(out=str(out), encoder=settings, buckets=Buckets((Picture(32, 32),), (5,)))
    run = start(job, [str(videos)], Engine(), clips_per_shard=2)
    list(run)
    return run.finish()


@pytest.fixture(scope="module")
def finished(videos, tmp_path_factory):
    out = tmp_path_factory.mktemp("finished") / "latents"
    return out, encode(videos, out)


@pytest.fixture
def copy(finished, tmp_path):
    shutil.copytree(finished[0], tmp_path / "latents")
    return tmp_path / "latents"


def spoil(out, pattern, content):
    (path,) = out.glob(pattern)
    path.write_bytes(content)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("pattern", REFUSED)
def test_what_a_job_rests_on_is_refused_in_words(copy, videos, pattern, name):
    spoil(copy, pattern, HOSTILE[name])
    if pattern == "weights.json":
        spoil(copy, "manifest/*.json", b"")  # so that something is to be done
        spoil(copy, "records/*/*.json", b"")
    with pytest.raises(TrnconvError) as refusal:
        encode(videos, copy)
    assert "another folder" in str(refusal.value)


@pytest.mark.parametrize("name", ["empty", "nested", "wrong types", "a Parquet file of nothing"])
@pytest.mark.parametrize("pattern", DONE_AGAIN)
def test_what_can_be_done_again_is(copy, videos, finished, pattern, name):
    spoil(copy, pattern, HOSTILE[name])
    if pattern.startswith("records"):
        spoil(copy, "manifest/*.json", b"")  # records are read when a segment is closed
    assert encode(videos, copy) == finished[1]
    assert len(list(LatentDataset(str(copy)).stream())) == 2


@pytest.mark.parametrize("name", HOSTILE)
def test_what_nobody_reads_harms_nobody(copy, videos, finished, name):
    for pattern in HARMLESS:
        spoil(copy, pattern, HOSTILE[name])
    assert encode(videos, copy) == finished[1]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("pattern", ["manifest.json", "manifest/*.parquet", "shards/*/*"])
def test_a_trainer_is_told_in_words(copy, pattern, name):
    spoil(copy, pattern, HOSTILE[name])
    with pytest.raises(TrnconvError) as refusal:
        list(LatentDataset(str(copy)).stream())
    assert str(copy) in str(refusal.value) or "manifest" in str(refusal.value)


def test_a_manifest_of_wrong_types_is_refused(copy):
    said = json.loads((copy / "manifest.json").read_text())
    for change in ({"segments": 7}, {"tensors": "mean"}, {"buckets": []}, {"windows": "x"}):
        (copy / "manifest.json").write_text(json.dumps({**said, **change}))
        with pytest.raises(TrnconvError, match="manifest"):
            LatentDataset(str(copy))


def test_a_document_is_read_or_is_none(tmp_path):
    for content in HOSTILE.values():
        assert read_json(content) in (None, [1, 2]) or isinstance(read_json(content), dict)
    assert read_json(b'{"a": 1}') == {"a": 1}
    assert read_json(Folder(str(tmp_path)).read("none.json")) is None
