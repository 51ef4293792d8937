"""Spools: what killed workers leave in a temporary folder goes with the next shard."""

import subprocess
import sys

import pytest

from trnconv.corpus.latents.spool import Spool
from trnconv.corpus.shards.shard import Shard
from trnconv.corpus.storage.store import Folder

pytestmark = pytest.mark.ray

KILLED = """
import os, signal, sys
from trnconv.corpus.shards.shard import Shard
from trnconv.corpus.latents.spool import Spool
from trnconv.corpus.storage.store import Folder
spool = Spool(Folder(sys.argv[1]), Shard(0, ()))
(spool.place / "latents").write_bytes(b"x" * 1000)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("kind", ["local", "store"])
def test_what_killed_workers_left_is_removed_and_what_the_living_have_is_not(
    kind, tmp_path, monkeypatch
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    out = Folder(str(tmp_path / "out") if kind == "local" else "memory://spool-test/out")
    place = tmp_path / "out" / "spool" if kind == "local" else tmp_path
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", KILLED, out.url], check=False)
        assert done.returncode < 0
    assert len(list(place.glob("trnconv-spool.*"))) == 1  # the second has swept up the first
    strange = place / "trnconv-spool.of-nobody.x"
    strange.mkdir()
    first, second = Spool(out, Shard(1, ())), Spool(out, Shard(2, ()))
    assert set(place.glob("trnconv-spool.*")) == {first.place, second.place, strange}
    first.close()
    second.close()
    assert list(place.glob("trnconv-spool.*")) == [strange]
