"""LatentDataset: every latent once, by number and in a stream, local and in a store."""

import json
from collections import Counter
from shutil import copytree

import pytest

from corpus_videos import write_corpus
from latent_corpus import write_latents
from trnconv.corpus import Buckets, EncoderSettings, Engine, Job, LatentDataset, Picture, start
from trnconv.corpus.shards.manifest import read_rows
from trnconv.corpus.storage.store import Folder
from trnconv.errors import TrnconvError

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def encoded(tmp_path_factory):
    """17 windows of 12 clips with captions, in 5 shards and two buckets."""
    folder = tmp_path_factory.mktemp("dataset")
    paths = write_corpus(folder / "videos", 12, lengths=(9, 5, 18), height=32, width=32)
    lines = [
        json.dumps({"url": str(path), "id": path.stem, "caption": f"number {number}"})
        for number, path in enumerate(paths)
    ]
    (folder / "all.jsonl").write_text("\n".join(lines))
    job = Job(
        out=str(folder / "out"),
        encoder=EncoderSettings(model="wan2.1", reduced=True),
        buckets=Buckets((Picture(32, 32),), (5, 9)),
        windows=2,
    )
    run = start(job, [str(folder / "all.jsonl")], Engine(), clips_per_shard=3)
    list(run)
    assert run.finish()["windows"] == 16
    return folder / "out"


@pytest.fixture(scope="module", params=["local", "store"])
def out(request, encoded):
    if request.param == "local":
        return str(encoded)
    import fsspec

    memory = fsspec.filesystem("memory")
    for path in encoded.rglob("*"):
        if path.is_file():
            memory.pipe_file(f"/dataset-test/{path.relative_to(encoded)}", path.read_bytes())
    return "memory://dataset-test"


def rows_of(encoded):
    return {
        row["key"]: row
        for path in sorted(encoded.glob("manifest/*.parquet"))
        for row in read_rows(path.read_bytes())
    }


def test_items_are_the_latents_of_the_manifest(out, encoded):
    from safetensors.torch import load_file

    latents, rows = LatentDataset(out), rows_of(encoded)
    assert len(latents) == len(rows) == 16
    items = [latents[number] for number in range(len(latents))]
    assert sorted(item["key"] for item in items) == sorted(rows)
    for item in items:
        row = rows[item["key"]]
        tensors = load_file(encoded / row["file"])
        for name in ("mean", "logvar"):
            assert item[name].equal(tensors[f"{item['key']}.{name}"])
        assert (item["caption"], item["bucket"]) == (row["caption"], row["bucket"])
        assert (item["fps"], item["start_s"], item["metadata"]) == (16.0, row["start_s"], "")


def test_a_bucket_has_latents_of_one_shape(out):
    from torch.utils.data import DataLoader

    latents = LatentDataset(out, bucket="32x32x9")
    assert len(latents) == latents.buckets["32x32x9"] == 12
    batches = list(DataLoader(latents, batch_size=5, shuffle=True))
    assert [len(batch["key"]) for batch in batches] == [5, 5, 2]
    assert batches[0]["mean"].shape == (5, 16, 3, 4, 4)
    with pytest.raises(TrnconvError, match="there are 32x32x5, 32x32x9"):
        LatentDataset(out, bucket="64x64x9")


def test_ranks_and_workers_share_all_latents_and_none_twice(out):
    from torch.utils.data import DataLoader

    latents = LatentDataset(out)
    for workers in (0, 2):
        given = Counter(
            item["key"]
            for rank in range(3)
            for item in DataLoader(
                latents.stream(rank=rank, world=3), batch_size=None, num_workers=workers
            )
        )
        assert len(given) == 16
        assert set(given.values()) == {1}


def keys(stream):
    return [item["key"] for item in stream]


def test_epochs_differ_and_one_epoch_is_the_same_for_everybody(out):
    latents = LatentDataset(out)
    stream = latents.stream()
    first, second = keys(stream), keys(stream)
    assert first != second
    assert sorted(first) == sorted(second)
    again = latents.stream()
    again.set_epoch(1)
    assert keys(again) == second
    assert keys(latents.stream(seed=None)) == keys(latents.stream(seed=None))


@pytest.mark.parametrize("stop", [0, 1, 5, 15, 16])
def test_a_stream_goes_on_where_it_stopped(out, stop):
    latents = LatentDataset(out)
    whole = keys(latents.stream())
    stream = latents.stream()
    items = iter(stream)
    given = [next(items)["key"] for _ in range(stop)]
    later = latents.stream()
    later.load_state_dict(json.loads(json.dumps(stream.state_dict())))
    assert given + keys(later) == whole


def test_batches_never_mix_buckets(out):
    batches = list(LatentDataset(out).stream(batch=5))
    assert all(len(set(batch["bucket"])) == 1 for batch in batches)
    assert sorted(len(batch["key"]) for batch in batches) == [2, 4, 5, 5]


def test_what_lies_side_by_side_in_a_store_is_one_request(tmp_path, monkeypatch):
    import fsspec

    memory, ranges = fsspec.filesystem("memory"), []
    for path in write_latents(tmp_path, segments=1, files=1).rglob("*.*"):
        memory.pipe_file(f"/requests-test/{path.relative_to(tmp_path)}", path.read_bytes())
    read = Folder.read_range
    monkeypatch.setattr(Folder, "read_range", lambda *args: ranges.append(args[2:]) or read(*args))
    stored = LatentDataset("memory://requests-test", verify=True)
    assert [len(batch["key"]) for batch in stored.stream(seed=None, batch=5)] == [5]
    assert len(ranges) == 2  # a header, and all of them
    assert len(keys(stored.stream())) == 5
    assert len(ranges) == 7  # mean and logvar of each, at random


def test_what_has_changed_since_it_was_encoded_is_noticed_when_asked(encoded, tmp_path):
    folder = tmp_path / "rot"
    copytree(encoded, folder)
    checked = LatentDataset(str(folder), verify=True)
    assert len([checked[number] for number in range(len(checked))]) == 16
    path = min(folder.rglob("*.safetensors"))
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    assert len(list(LatentDataset(str(folder)).stream())) == 16  # and says nothing
    words = rf"{path.name}: the latents of \w+ have SHA-256 .*Remove it and run the encoding again"
    for read in (lambda: list(checked.stream()), lambda: [checked[n] for n in range(16)]):
        with pytest.raises(TrnconvError, match=words):
            read()


def test_what_is_not_there_or_broken_is_refused_in_words(encoded, tmp_path):
    with pytest.raises(TrnconvError, match=r"no manifest\.json of this version"):
        LatentDataset(str(tmp_path))
    (tmp_path / "manifest.json").write_text("[" * 100_000)
    with pytest.raises(TrnconvError, match=r"no manifest\.json of this version"):
        LatentDataset(str(tmp_path))
    latents = LatentDataset(str(encoded))
    with pytest.raises(TrnconvError, match="a rank is from 0 to 1"):
        latents.stream(rank=2, world=2)
    with pytest.raises(TrnconvError, match="at least 1"):
        latents.stream(batch=0)


@pytest.mark.parametrize("content", [b"", b"\xff" * 16, b"\x02" + bytes(7) + b"[]", "cut"])
def test_a_file_that_is_cut_or_something_else_is_refused_in_words(encoded, content):
    import fsspec

    memory = fsspec.filesystem("memory")
    for path in encoded.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            if path.suffix == ".safetensors":
                data = data[:-10] if content == "cut" else content
            memory.pipe_file(f"/broken-{hash(content)}/{path.relative_to(encoded)}", data)
    latents = LatentDataset(f"memory://broken-{hash(content)}")
    with pytest.raises(TrnconvError, match="Run the encoding again"):
        [latents[number] for number in range(len(latents))]
    with pytest.raises(TrnconvError, match="Run the encoding again"):
        list(latents.stream())
