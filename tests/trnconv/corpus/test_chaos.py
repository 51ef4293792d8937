"""Jobs that are killed, crowded, starved and fed while they run: nobody can tell afterwards.

Latents and rows of the manifest are those of an undisturbed run, each clip once. A few kills by
default; TRNCONV_CHAOS_KILLS=20 for as many as one likes. Every process that is ended was started
here, and is ended by id. Servers are on loopback.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks.corpus_store import StandIn
from corpus_videos import spoil, write_corpus
from processes import descendants, kill
from trnconv.corpus import Buckets, EncoderSettings, Engine, Job, LatentDataset, Picture, start
from trnconv.corpus.shards.manifest import read_rows
from trnconv.corpus.storage.store import Folder
from yardstick import limit_s

pytestmark = pytest.mark.chaos

ROOT = Path(__file__).parents[3]
KILLS = int(os.environ.get("TRNCONV_CHAOS_KILLS", "3"))
CLIPS, PER_SHARD = 12, 3
OPTIONS = (
    "--model wan2.1 --reduced --random-weights --size 32x32 --frames 5 --frames 9 --json"
    f" --dtype bfloat16 --clips-per-shard {PER_SHARD}"
).split()


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chaos") / "videos"
    paths = write_corpus(folder, CLIPS, lengths=(9, 5), height=32, width=32)
    spoil(paths[3], 2)
    return folder


def encode(videos, out):
    settings = EncoderSettings(model="wan2.1", reduced=True, dtype="bfloat16")
    job = Job(out=str(out), encoder=settings, buckets=Buckets((Picture(32, 32),), (5, 9)))
    run = start(job, [str(videos)], Engine(), clips_per_shard=PER_SHARD)
    list(run)
    return run.finish()


def result(out):
    """Everything that lasts: rows, and the bytes of files; without what names a run."""
    folder = Folder(str(out))
    rows, files = [], {}
    for name in sorted(folder.sizes("manifest")):
        if name.endswith(".parquet"):
            rows += read_rows(folder.read(f"manifest/{name}"))
    for name in folder.sizes("shards/000000"):
        files[name] = folder.read(f"shards/000000/{name}")
    return rows, files


@pytest.fixture(scope="module")
def undisturbed(videos, tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed")
    encode(videos, out)
    rows, files = result(out)
    assert (len(rows), sum(row["file"] is not None for row in rows)) == (CLIPS, CLIPS - 1)
    return rows, files


def environment(**more):
    own = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src"), "PYTHONFAULTHANDLER": "1"}
    return {**os.environ, **own, **more}


def command(videos, out, *more):
    return [
        *(sys.executable, "-m", "trnconv", "encode", str(videos), "--out", str(out)),
        *OPTIONS,
        *more,
    ]


def started(arguments, **more):
    return subprocess.Popen(
        arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment(**more)
    )


def end(process):
    """Kill a process and all below it."""
    below = descendants(process.pid)
    kill(process.pid)
    process.communicate()
    for left in below:
        kill(left)


def ended(process):
    _, errors = process.communicate(timeout=limit_s(120))
    assert process.returncode == 0, errors.decode()


def disturbed(make):
    """Kill a job again and again, later each time, and let it end at last."""
    begun = time.monotonic()
    ended(make("warm"))  # how long a whole run takes here
    whole_s = time.monotonic() - begun
    for number in range(KILLS):
        process = make("killed")
        with suppress(subprocess.TimeoutExpired):
            process.wait(whole_s * (number + 1) / (KILLS + 1))
        end(process)
    ended(make("killed"))


def test_a_loop_that_is_killed_again_and_again(videos, undisturbed, tmp_path):
    disturbed(lambda name: started(command(videos, tmp_path / name)))
    assert result(tmp_path / "killed") == undisturbed


def test_ranks_of_torchrun_that_are_killed_again_and_again(videos, undisturbed, tmp_path):
    def make(name):
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        launcher += ["--nproc-per-node", "2", "--no-python"]
        return started([*launcher, *command(videos, tmp_path / name, "--engine", "torchrun")])

    disturbed(make)
    assert result(tmp_path / "killed") == undisturbed


def test_ray_that_is_killed_again_and_again(videos, undisturbed, tmp_path):
    """The driver, Ray's own processes and the workers, all at once."""
    sockets = tempfile.mkdtemp(prefix="ray")  # names of sockets must be short
    own = {"HOME": str(tmp_path), "RAY_TMPDIR": sockets}
    engine = ("--engine", "ray", "--workers", "2")
    try:
        disturbed(lambda name: started(command(videos, tmp_path / name, *engine), **own))
    finally:
        shutil.rmtree(sockets, ignore_errors=True)
    assert result(tmp_path / "killed") == undisturbed


@pytest.mark.parametrize("jobs", [2, 4])
def test_jobs_on_one_folder_share_the_work(videos, undisturbed, tmp_path, jobs):
    processes = [started(command(videos, tmp_path / "out")) for _ in range(jobs)]
    for process in processes:
        ended(process)
    assert result(tmp_path / "out") == undisturbed


def test_one_of_two_dies_and_the_other_takes_over(videos, undisturbed, tmp_path):
    out = tmp_path / "out"
    first, second = (started(command(videos, out)) for _ in range(2))
    deadline = time.monotonic() + limit_s(120)
    while not list(out.glob("leases/000000/*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    end(first)
    ended(second)
    assert result(out) == undisturbed


def test_a_corpus_that_fills_while_it_is_encoded(videos, undisturbed, tmp_path):
    corpus = tmp_path / "videos"
    corpus.mkdir()
    paths = sorted(videos.iterdir())
    for part in (paths[:5], paths[5:]):
        for path in part:
            os.link(path, corpus / path.name)
        encode(corpus, tmp_path / "out")
    assert encode(corpus, tmp_path / "out")["clips"] == CLIPS - 1
    names = [row["url"].rpartition("/")[2] for row in result(tmp_path / "out")[0]]
    assert sorted(names) == [path.name for path in paths]
    values = {row["url"].rpartition("/")[2]: row["sha256"] for row in undisturbed[0]}
    for row in result(tmp_path / "out")[0]:
        assert row["sha256"] == values[row["url"].rpartition("/")[2]]


FULL = """
import resource, signal, sys
from trnconv.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)), resource.RLIM_INFINITY))
sys.exit(main())
"""


def test_a_disk_that_is_full_is_said_in_words_and_loses_nothing(videos, undisturbed, tmp_path):
    """Files end at 2 kB, as if the disk did: latents do not fit, small documents do."""
    arguments = command(videos, tmp_path / "out")
    full = [sys.executable, "-c", FULL, "2000", *arguments[3:]]
    stopped = subprocess.run(
        full, capture_output=True, text=True, check=False, env=environment(), timeout=limit_s(120)
    )
    assert (stopped.returncode, "Traceback" in stopped.stderr) == (2, False), stopped.stderr
    assert "run the same command again" in stopped.stderr
    ended(started(arguments))
    assert result(tmp_path / "out") == undisturbed


def test_a_store_like_s3_holds_the_same(videos, undisturbed):
    with StandIn() as store:
        out = f"{store.url}/latents"
        processes = [started(command(videos, out)) for _ in range(2)]
        time.sleep(2)
        processes[0].send_signal(signal.SIGTERM)
        processes[0].communicate()
        ended(processes[1])
        ended(started(command(videos, out)))
        assert result(out) == undisturbed
        assert len(list(LatentDataset(out).stream())) == CLIPS - 1
