"""Eighty kinds of file on three engines: the same bytes, and each file encoded or accounted for."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from corpus_videos import write_video
from http_videos import free_port
from odd_videos import REASONS, SOUND, write_odd
from trnconv.corpus.shards.manifest import read_rows
from trnconv.corpus.storage.addresses import readable
from yardstick import limit_s

pytestmark = pytest.mark.chaos

ROOT = Path(__file__).parents[3]
OPTIONS = (
    "--model wan2.1 --reduced --random-weights --size 32x48 --size 48x32 --size 32x32 --frames 5"
    " --frames 9 --dtype bfloat16 --clips-per-shard 8 --most-decode-s 60"
).split()
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """The folder, and its files by kind."""
    folder = tmp_path_factory.mktemp("odd")
    write_video(folder / "outside.mp4", frames=9, height=32, width=32, seed=7)
    made = write_odd(folder / "videos", folder / "outside.mp4", free_port())
    assert len(made) >= 80
    return folder / "videos", made


def encoded(videos, out, engine):
    """What `trnconv encode` shows on this engine."""
    arguments = ["encode", str(videos), "--out", str(out), *OPTIONS, "--engine", engine]
    command = [sys.executable, "-m", "trnconv", *arguments]
    if engine == "torchrun":
        command = [sys.executable, *TORCHRUN, *command]
    if engine == "ray":
        command += ["--workers", "2"]
    sockets = tempfile.mkdtemp(prefix="ray")  # names of sockets must be short
    own = {"HOME": str(out.parent), "RAY_TMPDIR": sockets, "OMP_NUM_THREADS": "1"}
    try:
        ended = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **own, "PYTHONPATH": str(ROOT / "src")},
            timeout=limit_s(240),
        )
    finally:
        shutil.rmtree(sockets, ignore_errors=True)
    assert ended.returncode == 0, ended.stderr
    assert "\x1b" not in ended.stdout
    return ended.stdout


def lasting(out):
    kinds = ("*.json", "plan/*.json", "plan/segments/*", "manifest/*", "shards/*/*", "records/*/*")
    return {path.relative_to(out): path.read_bytes() for kind in kinds for path in out.glob(kind)}


@pytest.fixture(scope="module")
def by_a_loop(corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("loop") / "out"
    encoded(corpus[0], out, "local")
    return out


def test_every_file_is_encoded_or_has_the_reason_that_it_should(corpus, by_a_loop):
    _, made = corpus
    rows = {
        row["url"]: row
        for path in by_a_loop.glob("manifest/*.parquet")
        for row in read_rows(path.read_bytes())
    }
    assert rows.keys() == {readable(str(path)) for path in made.values()}
    reasons = {kind: rows[readable(str(path))]["reason"] for kind, path in made.items()}
    assert {kind for kind, reason in reasons.items() if reason is None} == SOUND
    for kind, words in REASONS.items():
        assert reasons[kind].startswith(words), kind
    shapes = {row["bucket"].rpartition("x")[0] for row in rows.values() if row["bucket"]}
    assert shapes == {"32x32", "32x48", "48x32"}
    assert rows[str(made["anamorphic_tall"])]["bucket"] == "48x32x9"


@pytest.mark.parametrize("engine", ["torchrun", "ray"])
def test_other_engines_give_the_same_bytes(corpus, by_a_loop, tmp_path, engine):
    encoded(corpus[0], tmp_path / "out", engine)
    assert lasting(tmp_path / "out") == lasting(by_a_loop)
