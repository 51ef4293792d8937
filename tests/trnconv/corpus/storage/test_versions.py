"""Versions: noted by job, records and manifest; others are refused unless accepted by name."""

import json
from dataclasses import asdict, replace

import pytest

from corpus_videos import write_corpus, write_video
from trnconv.corpus import Buckets, EncoderSettings, Engine, Job, Picture, RunTerms, start
from trnconv.corpus.jobs import job
from trnconv.corpus.jobs.worker import job_encoder
from trnconv.corpus.storage import versions
from trnconv.corpus.storage.versions import versions_here
from trnconv.errors import TrnconvError, UnsupportedError

pytestmark = pytest.mark.ray

SETTINGS = EncoderSettings(model="wan2.1", reduced=True, dtype="bfloat16")
BUCKETS = Buckets((Picture(32, 32),), (5, 9))


def encode(source, out, *accept):
    asked = Job(
        out=str(out), encoder=SETTINGS, buckets=BUCKETS, terms=RunTerms(accept=tuple(accept))
    )
    run = start(asked, [str(source)], Engine(), clips_per_shard=2)
    list(run)
    return run.finish()


@pytest.fixture
def other(monkeypatch):
    """A way to have other versions than there are."""

    def become(**changes):
        here = replace(versions_here("torch"), **changes)
        monkeypatch.setattr(job, "versions_here", lambda _: here)
        return asdict(here)

    return become


def test_job_records_and_manifest_say_with_what_they_were_made(tmp_path):
    import av
    import diffusers
    import torch

    import trnconv

    write_corpus(tmp_path / "videos", 1, lengths=(9,), height=32, width=32)
    manifest = encode(tmp_path / "videos", tmp_path / "out")
    here = {
        "trnconv": trnconv.__version__,
        "torch": torch.__version__,
        "diffusers": diffusers.__version__,
        "av": av.__version__,
        "ffmpeg": av.ffmpeg_version_info,
        "neuron": "",
    }
    assert manifest["versions"] == [here]
    assert json.loads((tmp_path / "out/job.json").read_text())["versions"] == here
    (record,) = (tmp_path / "out/records").rglob("*.json")
    said = json.loads(record.read_text())
    assert [{"neuron": "", **of} for of in said["versions"]] == [here]
    assert len(said["weights_sha256"]) == 64


def test_other_versions_are_refused_unless_each_is_accepted_by_name(tmp_path, other):
    videos, out = tmp_path / "videos", tmp_path / "out"
    write_corpus(videos, 2, lengths=(9,), height=32, width=32)
    first = encode(videos, out)["versions"]
    write_video(videos / "later.mp4", frames=9, height=32, width=32, seed=9)
    second = other(torch="9.9", ffmpeg="99")
    words = r"torch was 2\S+ and is 9\.9; ffmpeg was \S+ and is 99\. .*--accept-version torch"
    with pytest.raises(TrnconvError, match=words):
        encode(videos, out)
    with pytest.raises(TrnconvError, match=r"versions: ffmpeg was \S+ and is 99\. "):
        encode(videos, out, "torch")
    manifest = encode(videos, out, "torch", "ffmpeg")
    assert (manifest["clips"], manifest["versions"]) == (3, [*first, second])
    assert encode(videos, out) == manifest  # they are known now
    assert encode(videos, out, "torch") == manifest
    assert len(list((out / "versions").iterdir())) == 1


def test_a_folder_that_does_not_say_is_of_other_versions(tmp_path):
    videos, out = tmp_path / "videos", tmp_path / "out"
    write_corpus(videos, 1, lengths=(9,), height=32, width=32)
    encode(videos, out)
    stated = json.loads((out / "job.json").read_text())
    del stated["versions"]
    (out / "job.json").write_text(json.dumps(stated))
    with pytest.raises(TrnconvError, match="trnconv was not noted and is 0"):
        encode(videos, out)
    encode(videos, out, "trnconv", "torch", "diffusers", "av", "ffmpeg")
    encode(videos, out)


def test_a_worker_with_other_versions_than_the_one_that_started_the_run_is_refused(tmp_path, other):
    """As on a machine of a cluster that was set up at another time."""
    asked = Job(out=str(tmp_path), encoder=SETTINGS, buckets=BUCKETS).claim()
    assert asked.require_versions() == versions_here("torch")
    other(diffusers="0.1")
    with pytest.raises(TrnconvError, match=r"on \S+: diffusers was \S+ and is 0\.1"):
        job_encoder(asked)


def test_a_name_that_no_version_has_is_refused(monkeypatch):
    with pytest.raises(UnsupportedError, match="one of trnconv, torch, diffusers, av, ffmpeg"):
        RunTerms(accept=("pytorch",))
    monkeypatch.setattr(versions, "_installed", lambda name: "1" if name == "nki" else "")
    versions_here.cache_clear()
    assert versions_here("neuron").neuron == "nki 1"
    assert versions_here("torch").neuron == ""
    versions_here.cache_clear()
