"""Clips that are tried again: by the next run, or by name; all else of their shards stays."""

import json
import shutil

import pytest

from corpus_videos import spoil, write_corpus, write_video
from http_videos import HttpVideos, free_port
from trnconv.corpus import Buckets, EncoderSettings, Engine, Job, Limits, Picture, RunTerms, start
from trnconv.corpus.latents import encoding
from trnconv.corpus.shards.manifest import read_rows
from trnconv.corpus.videos import video_file
from trnconv.errors import TrnconvError

pytestmark = pytest.mark.ray

SETTINGS = EncoderSettings(model="wan2.1", reduced=True, dtype="bfloat16")
BUCKETS = Buckets((Picture(32, 32),), (5, 9))


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch):
    monkeypatch.setattr(video_file, "WAITS_S", (0.0, 0.0))


@pytest.fixture
def encoded(monkeypatch):
    """Shapes of clips that the model was given."""
    seen = []
    whole = encoding.Encoder.encode
    monkeypatch.setattr(
        encoding.Encoder, "encode", lambda self, px: (seen.append(px.shape), whole(self, px))[1]
    )
    return seen


def encode(source, out, *, shard=3, **changes):
    """The metrics of a run, and the manifest."""
    job = Job(out=str(out), encoder=SETTINGS, buckets=BUCKETS, **changes)
    run = start(job, [str(source)], Engine(), clips_per_shard=shard)
    return list(run), run.finish()


def reasons(out):
    """Why clips are set aside, by file name."""
    return {
        row["url"].rpartition("/")[2]: row["reason"]
        for path in sorted(out.glob("manifest/*.parquet"))
        for row in read_rows(path.read_bytes())
        if row["reason"]
    }


def lasting(out):
    kinds = ("*.json", "plan/**/*.*", "manifest/*", "shards/*/*", "records/*/*")
    return {
        str(path.relative_to(out)): path.read_bytes() for kind in kinds for path in out.glob(kind)
    }


def listed(tmp_path, urls):
    path = tmp_path / "all.txt"
    path.write_text("\n".join(map(str, urls)))
    return path


@pytest.mark.parametrize("way", ["refuses", "answers 403"])
def test_a_dead_server_stops_the_job_and_discards_nothing(tmp_path, encoded, way):
    (sound,) = write_corpus(tmp_path / "videos", 1, lengths=(9,), height=32, width=32)
    out = tmp_path / "out"
    with HttpVideos(sound.read_bytes()) as web:
        dead = f"http://127.0.0.1:{free_port()}/{{}}" if way == "refuses" else f"{web.url}/403.{{}}"
        with pytest.raises(TrnconvError, match=r"8 of the last 8 clips .*8 unreachable"):
            encode(listed(tmp_path, [dead.format(f"{n}.mp4") for n in range(20)]), out, shard=20)
        assert not (out / "records").exists()
        assert not (out / "manifest.json").exists()
        for count in (1, 2):  # however few they are
            few = listed(tmp_path, [dead.format(f"{n}.mp4") for n in range(count)])
            with pytest.raises(TrnconvError, match=rf"{count} of the last {count} clips"):
                encode(few, tmp_path / f"out{count}")
    assert encoded == []


def test_missing_files_stop_a_job_when_there_are_too_many(tmp_path):
    urls = [tmp_path / f"{n}.mp4" for n in range(12)]
    with pytest.raises(TrnconvError, match=r"12 of the last 12 .*12 missing"):
        encode(listed(tmp_path, urls), tmp_path / "out", shard=20)
    _, manifest = encode(
        listed(tmp_path, urls), tmp_path / "out", shard=20, terms=RunTerms(most_unread=1.0)
    )
    assert manifest["set_aside_by"] == {"missing": 12}


def test_one_unreadable_file_stops_nothing_and_is_tried_again(tmp_path, encoded):
    videos, out = tmp_path / "videos", tmp_path / "out"
    paths = write_corpus(videos, 6, lengths=(9, 5), height=32, width=32)
    kept = paths[2].read_bytes()
    spoil(paths[4], 1)
    long = tmp_path / ("x" * 300 + ".mp4")
    source = listed(tmp_path, [*paths, long])
    _, undisturbed = encode(source, tmp_path / "undisturbed")
    paths[2].unlink()
    paths[2].symlink_to(paths[2].name)
    _, manifest = encode(source, out)
    assert manifest["set_aside_by"] == {"unreadable": 2, "video": 1}
    paths[2].unlink()
    paths[2].write_bytes(kept)
    encoded.clear()
    _, manifest = encode(source, out)
    assert manifest == undisturbed
    assert manifest["set_aside_by"] == {"unreadable": 1, "video": 1}
    assert len(encoded) == 1  # what was encoded before is not encoded again
    assert lasting(out) == lasting(tmp_path / "undisturbed")
    assert not list(out.glob("again/*/*"))


def test_a_clip_that_is_still_unreachable_does_not_stop_the_next_run(tmp_path):
    """It is then the only clip that is read at all."""
    paths = write_corpus(tmp_path / "videos", 3, lengths=(9,), height=32, width=32)
    with HttpVideos(paths[0].read_bytes()) as web:
        source = listed(tmp_path, [*paths, f"{web.url}/403.mp4"])
        for requests in (3, 6, 9):
            _, manifest = encode(source, tmp_path / "out", shard=4)
            assert (manifest["clips"], manifest["set_aside_by"]) == (3, {"unreachable": 1})
            assert web.requests["GET", "403"] == requests


def test_a_shard_that_lost_a_file_while_it_waits_is_encoded_whole(tmp_path, encoded):
    videos, out = tmp_path / "videos", tmp_path / "out"
    paths = write_corpus(videos, 3, lengths=(9,), height=32, width=32)
    kept = paths[2].read_bytes()
    encode(videos, tmp_path / "undisturbed")
    encoded.clear()
    paths[2].unlink()
    paths[2].symlink_to("later")
    encode(videos, out)
    (videos / "later").write_bytes(kept)
    (file,) = out.glob("shards/*/*")
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    encode(videos, out, terms=RunTerms(retry=("missing",)))
    assert len(encoded) == 2 + 2  # the last latents of the file are not what they were
    before = lasting(tmp_path / "undisturbed")
    assert {name: data for name, data in lasting(out).items() if "plan" not in name} == {
        name: data for name, data in before.items() if "plan" not in name
    }


def test_reasons_are_tried_again_by_name_and_no_others(tmp_path, encoded):
    videos, out = tmp_path / "videos", tmp_path / "out"
    paths = write_corpus(videos, 5, lengths=(9,), height=32, width=32)
    spoil(paths[0], 1)
    source = listed(tmp_path, [*paths, videos / "later.mp4"])
    encode(source, out)
    assert set(reasons(out)) == {"clip_0000.mp4", "later.mp4"}
    write_video(videos / "later.mp4", frames=9, height=32, width=32)
    for retry in ((), ("not", "unreachable")):
        encode(source, out, terms=RunTerms(retry=retry))
        assert set(reasons(out)) == {"clip_0000.mp4", "later.mp4"}
    encoded.clear()
    metrics, manifest = encode(source, out, terms=RunTerms(retry=("missing",)))
    assert (set(reasons(out)), len(encoded)) == ({"clip_0000.mp4"}, 1)
    assert (sum(one.clips for one in metrics), manifest["clips"]) == (1, 5)
    write_video(paths[0], frames=9, height=32, width=32)
    _, manifest = encode(source, out, terms=RunTerms(retry=("all",)))
    assert (manifest["clips"], manifest["set_aside"]) == (6, 0)


def test_an_open_segment_is_looked_at_too(tmp_path):
    """A job that was stopped before its segment was closed."""
    videos, out = tmp_path / "videos", tmp_path / "out"
    write_corpus(videos, 4, lengths=(9,), height=32, width=32)
    (videos / "loop.mp4").symlink_to("loop.mp4")
    encode(videos, out, shard=5)
    for name in ("manifest/000000.json", "manifest/000000.parquet", "manifest.json"):
        (out / name).unlink()
    (videos / "loop.mp4").unlink()
    write_video(videos / "loop.mp4", frames=9, height=32, width=32)
    _, manifest = encode(videos, out, shard=5)
    assert (manifest["clips"], manifest["set_aside"]) == (5, 0)


def test_limits_are_raised_on_resume_and_every_change_is_noted(tmp_path):
    videos, out = tmp_path / "videos", tmp_path / "out"
    (path,) = write_corpus(videos, 1, lengths=(9,), height=32, width=32)
    size = path.stat().st_size
    encode(videos, out, limits=Limits(file_bytes=size - 1))
    assert reasons(out)["clip_0000.mp4"].startswith(f"too large: {size} bytes")
    again = RunTerms(retry=("too large",))
    _, manifest = encode(videos, out, limits=Limits(file_bytes=size), terms=again)
    assert manifest["clips"] == 1
    noted = [json.loads(one.read_text())["file_bytes"] for one in sorted(out.glob("limits/*"))]
    assert noted == [size - 1, size]
    encode(videos, out, limits=Limits(file_bytes=size))
    assert len(list(out.glob("limits/*"))) == 2


def test_a_clip_that_is_too_slow_is_tried_once_a_run_and_three_times_in_all(tmp_path):
    videos, out = tmp_path / "videos", tmp_path / "out"
    write_corpus(videos, 1, lengths=(9,), height=32, width=32)
    slow = Limits(decode_s=0.001)
    found = []
    for _ in range(4):
        metrics, _ = encode(videos, out, limits=slow)
        found.append((len(metrics), reasons(out)["clip_0000.mp4"]))
    late = "too slow: no end after 0.001 s"
    assert found == [
        (1, late),
        (1, f"{late}, in 2 runs"),
        (1, f"{late}, in 3 runs"),
        (0, f"{late}, in 3 runs"),
    ]
    shutil.rmtree(out)
    encode(videos, out, limits=slow)
    _, manifest = encode(videos, out)  # with the time it needs
    assert (manifest["clips"], manifest["set_aside"]) == (1, 0)
