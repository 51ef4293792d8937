"""Bits that rot: `verify` finds each, and the run makes the same bytes again, and no others."""

import shutil

import pytest

from corpus_videos import spoil, write_corpus
from trnconv.corpus import Buckets, EncoderSettings, Engine, Job, Picture, RunTerms, start
from trnconv.corpus.latents import encoding
from trnconv.errors import TrnconvError

pytestmark = pytest.mark.ray

SETTINGS = EncoderSettings(model="wan2.1", reduced=True, dtype="bfloat16")
BUCKETS = Buckets((Picture(32, 32),), (5, 9))


def encode(videos, out, *, verify=False):
    terms = RunTerms(verify=verify)
    job = Job(out=str(out), encoder=SETTINGS, buckets=BUCKETS, terms=terms)
    run = start(job, [str(videos)], Engine(), clips_per_shard=4)
    metrics = list(run)
    run.finish()
    return run.verified, metrics


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verified")
    paths = write_corpus(folder / "videos", 7, lengths=(9, 5), height=32, width=32)
    spoil(paths[2], 1)
    encode(folder / "videos", folder / "out")
    return folder


@pytest.fixture
def out(whole, tmp_path):
    shutil.copytree(whole / "out", tmp_path / "out")
    return tmp_path / "out"


def lasting(out):
    kinds = ("*.json", "plan/**/*.*", "manifest/*", "shards/*/*", "records/*/*")
    return {path.relative_to(out): path.read_bytes() for kind in kinds for path in out.glob(kind)}


def rot(path, place=-3):
    """Turn one bit, as a disk may that says nothing."""
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_nothing_is_damaged_where_nothing_was_done(whole, out):
    verified, metrics = encode(whole / "videos", out, verify=True)
    files = len(list(out.glob("shards/*/*")))
    assert (verified.files, verified.damaged, metrics) == (1 + 2 + files, (), [])
    assert verified.file_bytes > sum(path.stat().st_size for path in out.glob("shards/*/*"))
    assert lasting(out) == lasting(whole / "out")


@pytest.mark.parametrize("kind", ["latents", "header", "record", "broken record", "rows", "all"])
def test_a_bit_that_turned_is_found_and_what_it_was_part_of_made_again(whole, out, kind):
    files = sorted(out.glob("shards/*/*"))
    damaged = []
    if kind in ("latents", "all"):
        damaged.append((files[0], -3))
    if kind == "header":
        damaged.append((files[0], 20))
    if kind == "record":
        record = out / "records/000000/00000001.json"
        damaged.append((record, record.read_bytes().index(b'"fps": 16') + 8))  # now 17
    if kind == "broken record":
        damaged.append((out / "records/000000/00000001.json", 0))
    if kind in ("rows", "all"):
        damaged.append((out / "manifest/000000.parquet", 300))
    for path, place in damaged:
        rot(path, place)
    assert encode(whole / "videos", out)[1] == []  # without `verify`, nobody notices
    verified, metrics = encode(whole / "videos", out, verify=True)
    names = {str(path.relative_to(out)) for path, _ in damaged}
    assert set(verified.damaged) == names
    assert len(metrics) == (0 if kind == "rows" else 1)
    assert lasting(out) == lasting(whole / "out")


def test_only_clips_of_a_damaged_file_are_encoded_again(whole, out, monkeypatch):
    seen = []
    encode_one = encoding.Encoder.encode
    monkeypatch.setattr(
        encoding.Encoder, "encode", lambda self, px: (seen.append(len(px)), encode_one(self, px))[1]
    )
    (file,) = out.glob("shards/000000/00000000-32x32x9-*")
    rot(file)
    encode(whole / "videos", out, verify=True)
    assert set(seen) == {9}
    assert lasting(out) == lasting(whole / "out")


def test_a_plan_that_rots_is_refused_whenever_it_is_read(whole, out):
    (segment,) = out.glob("plan/segments/*")
    data = segment.read_bytes()
    rot(segment, len(data) // 2)
    with pytest.raises(TrnconvError, match=r"is no part of a plan .* Put it back"):
        encode(whole / "videos", out)


def test_a_store_is_verified_too(whole):
    import fsspec

    memory = fsspec.filesystem("memory")
    source = whole / "out"
    for path in source.rglob("*"):
        if path.is_file():
            memory.pipe_file(f"/verify-test/{path.relative_to(source)}", path.read_bytes())
    name = f"/verify-test/{next(source.glob('shards/*/*')).relative_to(source)}"
    memory.pipe_file(name, memory.cat_file(name)[:-1] + b"?")
    verified, metrics = encode(whole / "videos", "memory://verify-test", verify=True)
    assert (len(verified.damaged), len(metrics)) == (1, 1)
    for path, data in lasting(source).items():
        assert memory.cat_file(f"/verify-test/{path}") == data


def test_a_store_that_fails_while_it_is_verified_damages_nothing(whole, out, monkeypatch):
    before = lasting(out)

    def fails(*_, **__):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("fsspec.implementations.local.LocalFileSystem.cat_file", range_alone(fails))
        with pytest.raises(TrnconvError, match="Input/output error"):
            encode(whole / "videos", out, verify=True)
    assert lasting(out) == before


def range_alone(fails):
    """Reading of files that fails for parts of them."""
    from fsspec.implementations.local import LocalFileSystem

    read = LocalFileSystem.cat_file

    def cat_file(self, path, start=None, end=None, **more):
        return (fails if end is not None else read)(self, path, start=start, end=end, **more)

    return cat_file
