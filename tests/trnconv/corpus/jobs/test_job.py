"""A job in one process: latents, manifest, resumption, refusals."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from corpus_videos import spoil, write_corpus, write_video
from trnconv.corpus import Buckets, EncoderSettings, Engine, Job, Picture, start
from trnconv.corpus.shards.manifest import read_rows
from trnconv.corpus.videos.decoder import Decoder
from trnconv.corpus.videos.video_reader import VideoRequest
from trnconv.errors import TrnconvError, UnsupportedError

pytestmark = pytest.mark.ray

SETTINGS = EncoderSettings(model="wan2.1", reduced=True, dtype="bfloat16")
BUCKETS = Buckets((Picture(32, 32),), (5, 9))


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    paths = write_corpus(folder, 10, lengths=(9, 5), height=32, width=32)
    spoil(paths[3], 2)
    return folder


def encode(videos, out, *, shard=3, engine="local", **changes):
    """The metrics of a run, and the manifest."""
    job = Job(out=str(out), encoder=SETTINGS, buckets=BUCKETS, **changes)
    run = start(job, [str(videos)], Engine(engine), clips_per_shard=shard)
    return list(run), run.finish()


def contents(out, *names):
    """Files that do not say when or by whom, by name."""
    kept = names or ("*.json", "plan/**/*.*", "manifest/*", "shards/*/*", "records/*/*")
    return {str(path.relative_to(out)): path.read_bytes() for one in kept for path in out.glob(one)}


def rows(out):
    """Of the whole manifest."""
    return [
        row
        for path in sorted(out.glob("manifest/*.parquet"))
        for row in read_rows(path.read_bytes())
    ]


@pytest.fixture(scope="module")
def undisturbed(videos, tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed")
    metrics, manifest = encode(videos, out)
    return out, metrics, manifest


def test_every_clip_is_encoded_or_set_aside(undisturbed, videos):
    out, metrics, manifest = undisturbed
    assert (manifest["clips"], manifest["set_aside"], len(metrics)) == (9, 1, 4)
    assert manifest["buckets"] == {"32x32x5": 4, "32x32x9": 5}
    (bad,) = (row for row in rows(out) if row["reason"])
    assert (bad["url"], bad["reason"][:13]) == (str(videos / "clip_0003.mp4"), "not decodable")
    assert sum(one.clips for one in metrics) == 9
    assert max(one.shapes for one in metrics) == 2
    assert not list((out / "spool").iterdir())
    assert not [path for path in (out / "leases").rglob("*") if path.is_file()]


def moments(pixels, dtype):
    """Mean and log variance by diffusers' model alone, unpatched."""
    import torch

    from trnconv.models import find
    from trnconv.pytorch.model_builder import build

    model = build(find("wan2.1"), reduced=True, dtype=dtype)
    video = torch.from_numpy(pixels).permute(3, 0, 1, 2).float() / 127.5 - 1
    with torch.no_grad():
        wanted = model.encode(video[None].to(dtype)).latent_dist
    return {"mean": wanted.mean[0].float(), "logvar": wanted.logvar[0].float()}


def assert_as_good_as_bf16(got, pixels):
    """No further from float32 than twice what bf16 alone is: another order of sums, not more."""
    import torch

    exact, rounded = moments(pixels, torch.float32), moments(pixels, torch.bfloat16)
    for name, value in got.items():
        assert value.dtype == torch.bfloat16
        floor = (rounded[name] - exact[name]).abs().max()
        assert 0 < floor < exact[name].abs().max() / 10
        assert (value.float() - exact[name]).abs().max() <= 2 * floor


def test_latents_are_those_of_the_model_without_any_of_this(undisturbed):
    from safetensors.torch import load_file

    out, _, _ = undisturbed
    names = ("mean", "logvar")
    with closing(Decoder(VideoRequest(BUCKETS))) as decoder:
        for row in [row for row in rows(out) if row["file"]][:4]:
            tensors = load_file(out / row["file"])
            got = {name: tensors[f"{row['key']}.{name}"] for name in names}
            assert all(list(value.shape) == row["shape"] for value in got.values())
            ((_, pixels),) = decoder.decode(row["url"]).windows
            assert_as_good_as_bf16(got, pixels)


def test_a_file_has_one_bucket_and_every_latent_has_one_file(undisturbed):
    from safetensors import safe_open

    out, _, manifest = undisturbed
    found = {}
    for path in (out / "shards").rglob("*.safetensors"):
        with safe_open(path, "pt") as tensors:
            for name in set(tensors.keys()):
                assert name not in found
                found[name] = str(path.relative_to(out))
    encoded = [row for row in rows(out) if row["file"]]
    wanted = {f"{row['key']}.{name}": row["file"] for row in encoded for name in ("mean", "logvar")}
    assert found == wanted
    assert len(set(found.values())) == manifest["files"]
    assert all(row["bucket"] in row["file"] for row in encoded)


def test_checksums_are_of_the_files_the_values_and_the_sources(undisturbed):
    from safetensors.torch import load_file

    out, _, _ = undisturbed
    for path in (out / "records").rglob("*.json"):
        record = json.loads(path.read_text())
        for file in record["files"]:
            data = (out / file["name"]).read_bytes()
            assert hashlib.sha256(data).hexdigest() == file["sha256"]
            assert len(data) == file["file_bytes"]
    seen = set()
    for row in (row for row in rows(out) if row["file"]):
        tensors = load_file(out / row["file"])
        digest = hashlib.sha256()
        for name in ("logvar", "mean"):
            tensor = tensors[f"{row['key']}.{name}"]
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.view(dtype=_bits(tensor)).numpy().tobytes())
        assert digest.hexdigest() == row["sha256"]
        source = Path(row["url"]).read_bytes()
        assert (row["source_bytes"], row["source_sha256"]) == (
            len(source),
            hashlib.sha256(source).hexdigest(),
        )
        seen.add(row["sha256"])
    assert len(seen) == 9


def _bits(tensor):
    import torch

    return {2: torch.int16, 4: torch.int32}[tensor.element_size()]


def test_a_second_run_does_nothing_and_changes_nothing(undisturbed, videos):
    out, _, manifest = undisturbed
    before = contents(out, "**/*.*")
    again, same = encode(videos, out)
    assert (again, same) == ([], manifest)
    assert contents(out, "**/*.*") == before


@pytest.mark.parametrize("order", ["whole", "by torchrun"])
def test_another_run_gives_the_same_bytes(undisturbed, videos, tmp_path, monkeypatch, order):
    out, _, _ = undisturbed
    other = tmp_path / "other"
    if order == "whole":
        encode(videos, other)
    else:
        monkeypatch.setenv("WORLD_SIZE", "2")
        monkeypatch.setenv("MASTER_PORT", "1")
        for rank, shards in (("0", 4), ("1", 0)):  # the second finds all of it done
            monkeypatch.setenv("RANK", rank)
            metrics, done = encode(videos, other, engine="torchrun")
            assert (len(metrics), done["clips"]) == (shards, 9)
        (mark,) = (other / "plan" / "launches").iterdir()
        mark.unlink()
    assert contents(other) == contents(out)


@pytest.mark.parametrize(
    "loss",
    [
        "file gone",
        "file cut",
        "record gone",
        "record cut",
        "record of fewer clips",
        "manifest cut",
        "manifest gone, record nested",
    ],
)
def test_what_is_half_done_is_done_again_and_only_that(undisturbed, videos, tmp_path, loss):
    out, _, _ = undisturbed
    other = tmp_path / "other"
    shutil.copytree(out, other)
    file = next((other / "shards").rglob("00000001-*"))
    record = other / "records" / "000000" / "00000001.json"
    manifest = other / "manifest" / "000000.parquet"
    if loss == "file gone":
        file.unlink()
    elif loss == "file cut":
        file.write_bytes(file.read_bytes()[:-1])
    elif loss == "record gone":
        record.unlink()
    elif loss == "manifest cut":
        manifest.write_bytes(manifest.read_bytes()[:-5])
    else:
        manifest.unlink()
        manifest.with_suffix(".json").unlink()
        read = json.loads(record.read_bytes())
        record.write_bytes(
            {
                "record cut": record.read_bytes()[:40],
                "record of fewer clips": json.dumps({**read, "clips": read["clips"][1:]}).encode(),
                "manifest gone, record nested": b"[" * 100_000,
            }[loss]
        )
    redone, _ = encode(videos, other)
    assert [one.shard for one in redone] == ([] if loss == "manifest cut" else ["00000001"])
    assert contents(other) == contents(out)


def test_new_videos_make_new_shards_and_old_ones_stay(videos, tmp_path):
    corpus, out = tmp_path / "corpus", tmp_path / "out"
    paths = write_corpus(corpus, 4, lengths=(9,), height=32, width=32)
    encode(corpus, out, shard=3)
    before = contents(out, "shards/*/*", "records/*/*")
    write_video(corpus / "another.mp4", frames=9, height=32, width=32, seed=9)
    paths[0].unlink()  # its latents stay: they were encoded
    (fresh,), manifest = encode(corpus, out, shard=3)
    after = contents(out, "shards/*/*", "records/*/*")
    assert (fresh.shard, fresh.clips, manifest["clips"]) == ("00001000", 1, 5)
    assert {name: after[name] for name in before} == before


def test_a_video_replaced_under_its_name_is_noticed_and_keeps_its_latents(tmp_path):
    corpus, out = tmp_path / "corpus", tmp_path / "out"
    paths = write_corpus(corpus, 2, lengths=(9,), height=32, width=32)
    encode(corpus, out)
    before = contents(out)
    write_video(paths[0], frames=9, height=32, width=32, seed=9)
    job = Job(out=str(out), encoder=SETTINGS, buckets=BUCKETS)
    run = start(job, [str(corpus)], Engine())
    assert (run.changed.count, run.changed.some) == (1, (str(paths[0]),))
    assert list(run) == []
    assert contents(out) == before


def test_windows_and_notes_of_a_clip_are_in_its_rows(tmp_path):
    (path,) = write_corpus(tmp_path / "corpus", 1, lengths=(24,), height=32, width=32)
    listed = tmp_path / "all.jsonl"
    listed.write_text(json.dumps({"url": str(path), "id": "x", "caption": "blocks", "tag": 3}))
    _, manifest = encode(listed, tmp_path / "out", windows=4)
    assert (manifest["clips"], manifest["windows"]) == (1, 3)
    found = rows(tmp_path / "out")
    assert [(row["key"], row["frames"], row["start_s"]) for row in found] == [
        ("x", 9, 0.0),
        ("x.1", 9, 9 / 16),
        ("x.2", 5, 18 / 16),
    ]
    assert {(row["caption"], row["metadata"]) for row in found} == {("blocks", '{"tag": 3}')}


def test_a_clip_that_workers_die_of_is_set_aside(videos, tmp_path):
    """Four deaths: whose fault the first was is not known, the next three have the clip in hand."""
    out = tmp_path / "out"
    script = DIES.format(videos=str(videos), out=str(out))
    for _ in range(4):
        ended = subprocess.run(
            [sys.executable, "-c", script], check=False, env={**os.environ, "PYTHONPATH": PATHS}
        )
        assert ended.returncode == -signal.SIGKILL
    _, manifest = encode(videos, out, shard=10)
    bad = [row for row in rows(out) if row["reason"]]
    assert (manifest["clips"], manifest["set_aside"]) == (8, 2)
    assert "3 workers died while they encoded it" in {row["reason"] for row in bad}


ROOT = Path(__file__).parents[4]
PATHS = os.pathsep.join(str(ROOT / folder) for folder in ("src", "tests/support"))
DIES = """
import os, signal
from trnconv.corpus import Buckets, EncoderSettings, Engine, Job, Picture, start
from trnconv.corpus.latents import encoding
whole = encoding.Encoder.encode
def encode(self, pixels):
    self.count = getattr(self, "count", 0) + 1
    if self.count == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(self, pixels)
encoding.Encoder.encode = encode
job = Job(out={out!r}, encoder=EncoderSettings(model="wan2.1", reduced=True, dtype="bfloat16"),
          buckets=Buckets((Picture(32, 32),), (5, 9)))
list(start(job, [{videos!r}], Engine(), clips_per_shard=10))
"""


def test_other_weights_are_refused_before_a_clip_is_encoded(undisturbed, videos, tmp_path):
    out, _, _ = undisturbed
    other = tmp_path / "other"
    shutil.copytree(out, other)
    (other / "weights.json").write_text('{"weights_sha256": "those of yesterday"}')
    next((other / "records").rglob("00000001.json")).unlink()
    with pytest.raises(TrnconvError, match="weights_sha256 was 'those of yesterday' and is"):
        encode(videos, other)


@pytest.mark.parametrize("content", [b"", b"[]", b"[" * 100_000, b"\xff"])
def test_a_job_that_is_cut_or_something_else_is_refused_in_words(videos, tmp_path, content):
    (tmp_path / "job.json").write_bytes(content)
    with pytest.raises(TrnconvError, match=r"job\.json is not what this version writes"):
        encode(videos, tmp_path)


def test_a_folder_of_another_job_is_refused_with_the_difference(undisturbed, videos):
    out, _, _ = undisturbed
    job = Job(out=str(out), encoder=replace(SETTINGS, dtype="float32"), buckets=BUCKETS, fps=8.0)
    with pytest.raises(TrnconvError, match=r"dtype was 'bfloat16' and is 'float32'; fps was None"):
        start(job, [str(videos)], Engine())


def test_saved_weights_are_loaded_and_those_of_another_model_refused(tmp_path):
    import torch

    from trnconv.corpus.latents.encoding import Encoder
    from trnconv.models import find
    from trnconv.pytorch.model_builder import build, load

    wan = find("wan2.1")
    narrow = replace(wan, config=wan.reduced_config)  # as if it were released so: quick to save
    saved = build(narrow, seed=7)
    saved.save_pretrained(tmp_path / "vae")
    loaded = load(narrow, str(tmp_path), subfolder="vae")
    for name, value in saved.state_dict().items():
        torch.testing.assert_close(loaded.state_dict()[name], value, rtol=0, atol=0)
    settings = EncoderSettings(model="wan2.2-5b", weights=str(tmp_path), subfolder="vae")
    with pytest.raises(UnsupportedError, match="Name the model they belong to"):
        Encoder(settings)
    with pytest.raises(UnsupportedError, match=r"there is no config\.json"):
        Encoder(replace(settings, subfolder=None))


def test_the_simulated_kernels_encode_as_torch_does():
    import numpy as np

    from trnconv.corpus.latents.encoding import Encoder

    pixels = np.random.default_rng(0).integers(0, 256, (5, 16, 16, 3), dtype=np.uint8)
    assert_as_good_as_bf16(Encoder(replace(SETTINGS, backend="nkisim")).encode(pixels), pixels)


def test_a_device_that_is_not_there_is_refused_at_once():
    from trnconv.corpus.latents.encoding import Encoder

    with pytest.raises(UnsupportedError, match="or backend torch or nkisim"):
        Encoder(replace(SETTINGS, backend="neuron"))
