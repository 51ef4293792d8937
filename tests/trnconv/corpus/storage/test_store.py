"""Folders: files whole or not at all, one winner of many writers, and nobody's half removed."""

import errno
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trnconv.corpus.storage.store import Folder
from trnconv.errors import TrnconvError

pytestmark = pytest.mark.ray


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_a_folder_gives_back_what_was_put_and_nothing_else(kind, tmp_path):
    folder = Folder(str(tmp_path / "out") if kind == "local" else "memory://folder-test/out")
    assert (folder.read("a/b"), folder.sizes("a")) == (None, {})
    folder.write("a/b", b"one")
    folder.write("a/c", b"")
    folder.write("a/b", b"three")
    assert (folder.read("a/b"), folder.read("a/c")) == (b"three", b"")
    assert folder.sizes("a") == {"b": 5, "c": 0}
    assert not folder.create("a/b", b"late")
    assert folder.create("a/d", b"new")
    made = tmp_path / "made"
    made.write_bytes(b"file")
    assert folder.put("a/e", made)
    assert not folder.put("a/b", made)
    assert (folder.read("a/b"), folder.read("a/d"), folder.read("a/e")) == (
        b"three",
        b"new",
        b"file",
    )
    for _ in range(2):
        folder.remove("a/b")
    assert folder.sizes("a") == {"c": 0, "d": 3, "e": 4}


WRITER = """
import sys
from trnconv.corpus.storage.store import Folder
folder, me = Folder(sys.argv[1]), sys.argv[2]
sys.stdin.readline()
won = 0
for number in range(20):
    folder.write("shared/one", (me * 1000).encode())
    won += folder.create(f"shared/{number}", (me * 1000).encode())
print(won)
"""


@pytest.mark.parametrize("writers", [2, 8])
def test_writers_of_one_name_do_not_fight(writers, tmp_path):
    """Every write succeeds, every file has one winner, and is whole."""
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    started = [
        subprocess.Popen(
            [*command, str(number % 10)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(writers)
    ]
    won = [one.communicate("go\n", timeout=120)[0] for one in started]
    assert [one.returncode for one in started] == [0] * writers
    assert sum(map(int, won)) == 20
    for path in (tmp_path / "shared").iterdir():
        data = path.read_bytes()
        assert len(data) == 1000
        assert len(set(data)) == 1
    assert len(list((tmp_path / "shared").iterdir())) == 21


def test_threads_of_one_process_do_not_fight_either(tmp_path):
    folder = Folder(str(tmp_path))
    with ThreadPoolExecutor(16) as threads:
        won = list(threads.map(lambda n: folder.create(f"x/{n % 8}", b"y"), range(64)))
    assert sum(won) == 8


def test_a_writer_that_fails_leaves_nothing(tmp_path, monkeypatch):
    folder = Folder(str(tmp_path))

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(TrnconvError, match=r"The disk is full\. Set it right and run the same"):
            folder.write("shards/0", b"half")
    assert folder.read("shards/0") is None
    assert list((tmp_path / "shards").iterdir()) == []


KILLED = """
import os, signal, sys
from trnconv.corpus.storage.store import Folder
os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
Folder(sys.argv[1]).write("shards/0", b"half")
"""


def test_a_sweep_takes_what_killed_writers_left_and_leaves_the_living(tmp_path):
    folder = Folder(str(tmp_path))
    assert subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False).returncode < 0
    (left,) = (tmp_path / "shards").iterdir()
    assert folder.sizes("shards") == {}
    living = left.with_name(f"1.{Path('/proc/self').resolve().name}.unfinished")
    living.write_bytes(b"of a process that cannot be told")
    folder.sweep("shards")
    assert list((tmp_path / "shards").iterdir()) == [living]
    os.utime(living, (0, 0))  # older than a day
    folder.sweep("shards")
    assert list((tmp_path / "shards").iterdir()) == []
