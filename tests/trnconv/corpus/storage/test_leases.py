"""Leases: one holder, taken over from the dead and the late, and a count of who died of what."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from time import sleep

import pytest

from trnconv.corpus.storage.leases import claim
from trnconv.corpus.storage.store import Folder
from trnconv.errors import TrnconvError

pytestmark = pytest.mark.ray


@pytest.fixture
def folder(tmp_path):
    return Folder(str(tmp_path))


def test_one_of_many_gets_it(folder):
    with ThreadPoolExecutor(16) as threads:
        got = list(threads.map(lambda n: claim(folder, "s/1", f"w{n}"), range(16)))
    assert sum(lease is not None for lease in got) == 1


def test_a_lease_that_is_given_back_leaves_nothing_and_is_free(folder):
    with claim(folder, "s/1", "a").held():
        assert claim(folder, "s/1", "b") is None
    assert folder.sizes("leases/s") == {}
    assert claim(folder, "s/1", "b").attempt == 1


def test_a_lease_is_renewed_while_it_is_held_and_runs_out_after(folder):
    lease = claim(folder, "s/1", "a", seconds=0.4)
    with lease.held():
        sleep(1.0)
        assert claim(folder, "s/1", "b") is None
    late = claim(folder, "s/2", "a", seconds=0.2)
    assert claim(folder, "s/2", "b") is None
    sleep(0.3)
    assert late.attempt == 1
    assert claim(folder, "s/2", "b").attempt == 2


DIES = """
import os, signal, sys
from trnconv.corpus.storage.leases import claim
from trnconv.corpus.storage.store import Folder
lease = claim(Folder(sys.argv[1]), "s/1", "w")
lease.note(sys.argv[2])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_deaths_are_counted_by_the_clip_in_hand_but_the_first_is_nobodys(folder):
    """The first holder notes nothing: a store would bill a request for every clip."""
    for at in ("x", "x", "y", "x"):
        subprocess.run([sys.executable, "-c", DIES, folder.url, at], check=False)
    lease = claim(folder, "s/1", "w")
    assert (lease.attempt, dict(lease.deaths)) == (5, {"x": 2, "y": 1})
    lease.note("z")
    with pytest.raises(KeyError), lease.held():
        raise KeyError
    after = claim(folder, "s/1", "w")  # an error is no death
    assert (after.attempt, dict(after.deaths)) == (6, {"x": 2, "y": 1})


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[" * 100_000, b'{"process": 3, "worker": [], "until": "x"}', b"null"]
)
def test_a_file_that_is_no_lease_holds_nobody_up(folder, content):
    folder.write("leases/s/1.1.json", content)
    assert claim(folder, "s/1", "w").attempt == 2


def test_a_hundred_attempts_are_refused_in_words(folder):
    """Ray Data starts dead actors again for ever: what ends it is the count of attempts."""
    ended = {"process": "x-1-1", "worker": "w", "until": 0.0}
    for attempt in range(1, 101):
        folder.write(f"leases/s/1.{attempt}.json", json.dumps(ended).encode())
    with pytest.raises(TrnconvError, match="100 attempts at s/1"):
        claim(folder, "s/1", "w")


TERMINATED = """
import os, signal, sys
from trnconv.corpus.storage.leases import claim
from trnconv.corpus.jobs.termination import terminated_in_order
from trnconv.corpus.storage.store import Folder
lease = claim(Folder(sys.argv[1]), "s/1", "w")
lease.note(sys.argv[2])
with terminated_in_order(), lease.held():
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()
"""


def test_who_is_terminated_has_not_died_of_a_clip(folder, tmp_path):
    """A launcher ends all ranks when one fails: clips in their hands are not blamed."""
    for _ in range(4):
        done = subprocess.run([sys.executable, "-c", TERMINATED, str(tmp_path), "x"], check=False)
        assert done.returncode == 128 + 15
    lease = claim(folder, "s/1", "after")
    assert (lease.attempt, lease.deaths) == (5, {})
