"""A job in one process: latents, manifest, resumption, refusals."""

import hashlib
import json
from dataclasses import replace

import pytest

from corpus_videos import spoil, write_corpus, write_video
from trnconv.corpus import Buckets, EncoderSettings, Engine, Job, Picture, start
from trnconv.errors import TrnconvError, UnsupportedError

pytestmark = pytest.mark.ray

SETTINGS = EncoderSettings(model="wan2.1", reduced=True)
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
    return list(run), job.write_manifest(run.shards)


def contents(out, *names):
    """Files that do not say when or by whom, by name."""
    kept = names or ("job.json", "plan.jsonl", "manifest.json", "shards/*", "records/*")
    return {str(path.relative_to(out)): path.read_bytes() for one in kept for path in out.glob(one)}


@pytest.fixture(scope="module")
def undisturbed(videos, tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed")
    metrics, manifest = encode(videos, out)
    return out, metrics, manifest


def test_every_clip_is_encoded_or_set_aside(undisturbed, videos):
    _, metrics, manifest = undisturbed
    assert (manifest["clips"], len(manifest["shards"]), len(metrics)) == (9, 4, 4)
    (bad,) = manifest["bad"]
    assert (bad["url"], bad["reason"][:13]) == (str(videos / "clip_0003.mp4"), "not decodable")
    assert sum(one.clips for one in metrics) == 9
    assert max(one.shapes for one in metrics) == 2


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

    from trnconv.corpus.video_reader import read_video

    out, _, manifest = undisturbed
    shard = manifest["shards"][0]
    tensors = load_file(out / shard["file"])
    record = json.loads((out / "records" / "000000.json").read_text())
    names = ("mean", "logvar")
    assert set(tensors) == {f"{clip}.{name}" for clip in shard["clips"] for name in names}
    for clip in record["clips"]:
        got = {name: tensors[f"{clip['id']}.{name}"] for name in names}
        assert {name: list(value.shape) for name, value in got.items()} == clip["shapes"]
        assert_as_good_as_bf16(got, read_video(clip["url"], BUCKETS).pixels)


def test_checksums_are_of_the_files_and_of_the_values(undisturbed):
    from safetensors.torch import load_file

    out, _, manifest = undisturbed
    seen = set()
    for shard in manifest["shards"]:
        data = (out / shard["file"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == shard["sha256"]
        assert len(data) == shard["bytes"]
        record = json.loads((out / "records" / f"{shard['shard']}.json").read_text())
        tensors = load_file(out / shard["file"])
        for clip in record["clips"]:
            digest = hashlib.sha256()
            for name in sorted(clip["shapes"]):
                tensor = tensors[f"{clip['id']}.{name}"]
                digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
                digest.update(tensor.view(dtype=_bits(tensor)).numpy().tobytes())
            assert digest.hexdigest() == clip["sha256"]
            seen.add(clip["sha256"])
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
        for rank in ("1", "0"):
            monkeypatch.setenv("RANK", rank)
            metrics, done = encode(videos, other, engine="torchrun")
            assert len(metrics) == 2
            assert (done is None) == (rank == "1")  # who ends last writes the manifest
    assert contents(other) == contents(out)


@pytest.mark.parametrize(
    "loss", ["file gone", "file cut", "record gone", "record cut", "record of fewer clips"]
)
def test_what_is_half_done_is_done_again_and_only_that(undisturbed, videos, tmp_path, loss):
    out, _, _ = undisturbed
    other = tmp_path / "other"
    encode(videos, other)
    file, record = other / "shards" / "000001.safetensors", other / "records" / "000001.json"
    if loss == "file gone":
        file.unlink()
    elif loss == "file cut":
        file.write_bytes(file.read_bytes()[:-1])
    elif loss == "record gone":
        record.unlink()
    elif loss == "record cut":
        record.write_bytes(record.read_bytes()[:40])
    else:
        read = json.loads(record.read_bytes())
        record.write_text(json.dumps({**read, "clips": read["clips"][1:]}))
    (redone,), _ = encode(videos, other)
    assert redone.shard == "000001"
    assert contents(other) == contents(out)


def test_new_videos_make_new_shards_and_old_ones_stay(videos, tmp_path):
    corpus, out = tmp_path / "corpus", tmp_path / "out"
    paths = write_corpus(corpus, 4, lengths=(9,), height=32, width=32)
    encode(corpus, out, shard=3)
    before = contents(out, "shards/*", "records/*")
    write_video(corpus / "another.mp4", frames=9, height=32, width=32, seed=9)
    paths[0].unlink()  # its latents stay: they were encoded
    (fresh,), manifest = encode(corpus, out, shard=3)
    after = contents(out, "shards/*", "records/*")
    assert (fresh.shard, fresh.clips, manifest["clips"]) == ("000002", 1, 5)
    assert {name: after[name] for name in before} == before


def test_a_folder_of_another_job_is_refused_with_the_difference(undisturbed, videos):
    out, _, _ = undisturbed
    job = Job(out=str(out), encoder=replace(SETTINGS, dtype="float32"), buckets=BUCKETS, fps=8.0)
    with pytest.raises(TrnconvError, match=r"dtype was 'bfloat16' and is 'float32'; fps was None"):
        start(job, [str(videos)], Engine())


def test_saved_weights_are_loaded_and_those_of_another_model_refused(tmp_path):
    import torch

    from trnconv.corpus.encoding import Encoder
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

    from trnconv.corpus.encoding import Encoder

    pixels = np.random.default_rng(0).integers(0, 256, (5, 16, 16, 3), dtype=np.uint8)
    assert_as_good_as_bf16(Encoder(replace(SETTINGS, backend="nkisim")).encode(pixels), pixels)


def test_a_device_that_is_not_there_is_refused_at_once():
    from trnconv.corpus.encoding import Encoder

    with pytest.raises(UnsupportedError, match="or backend torch or nkisim"):
        Encoder(replace(SETTINGS, backend="neuron"))
