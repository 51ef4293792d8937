"""Ray, on this machine alone: workers and a driver are killed, and nobody can tell afterwards.

Everything listens on loopback. Every process that is ended was started here, and is ended by id.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace

import pytest

from corpus_videos import spoil, write_corpus
from processes import descendants, kill, listeners, parents, wait_until
from trnconv.corpus.engines import ray_data
from trnconv.corpus.shards.manifest import read_rows
from trnconv.corpus.videos.clips import clip_of
from trnconv.errors import TrnconvError
from yardstick import limit_s

pytestmark = pytest.mark.ray

ROOT = Path(__file__).parents[4]
CLIPS, BAD, PER_SHARD, WORKERS = 200, 10, 10, 4  # a shard has more clips than a task
SHARDS = (CLIPS + BAD) // PER_SHARD
LIMIT_S = 150  # of one run, on a quiet machine
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}  # 127.0.0.1, as /proc/net has it
OPTIONS = (
    "--model wan2.1 --reduced --random-weights --size 64x64 --frames 9 --frames 17 --json"
    f" --clips-per-shard {PER_SHARD}"
).split()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """200 videos, and 10 that are spoilt."""
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder, CLIPS + BAD)
    for number, path in enumerate(spoilt(folder)):
        spoil(path, number)
    return folder


def spoilt(corpus):
    """Ten videos, spread over the corpus."""
    return sorted(corpus.iterdir())[:: (CLIPS + BAD) // BAD][:BAD]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A home and a place for Ray's sockets; their names must be short."""
    sockets = tempfile.mkdtemp(prefix="ray")
    yield {
        **os.environ,
        "HOME": str(tmp_path_factory.mktemp("home")),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT / "src"),
        "RAY_TMPDIR": sockets,
    }
    shutil.rmtree(sockets)


class Driver:
    """`trnconv encode --engine ray` as a process, and all that it starts."""

    def __init__(self, corpus, out, environment, script=("-m", "trnconv"), more=()):
        engine = ["--engine", "ray", "--workers", str(WORKERS)]
        command = [sys.executable, *script, "encode", str(corpus), "--out", str(out)]
        self.out = out
        self.process = subprocess.Popen(
            [*command, *OPTIONS, *more, *engine],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=out.parent,
        )

    def ended(self):
        """The summary, once it ends by itself."""
        out, err = self.process.communicate(timeout=limit_s(LIMIT_S))
        assert self.process.returncode == 0, err
        wait_until(lambda: not self.workers(), 60, "workers end with their driver")
        return json.loads(out)

    def done(self):
        """How many shards have a record."""
        return len(list(self.out.glob("records/*/*.json")))

    def workers(self):
        """Process ids of workers that are alive."""
        names = [path.stem for path in self.out.glob("workers/*.json")]
        alive = parents()
        return sorted(pid for name in names if (pid := int(name.rpartition("-")[2])) in alive)

    def kill(self):
        """End the driver: its workers end by themselves, and what Ray leaves is ended by id."""
        below = descendants(self.process.pid)
        kill(self.process.pid)
        self.process.communicate()
        try:
            wait_until(lambda: not self.workers(), 60, "workers end with their driver")
        finally:
            for left in below & set(parents()):
                kill(left)


def plain_loop(corpus, clips):
    """Wall and CPU seconds a clip, of a loop in this process with nothing around it."""
    import torch

    from trnconv.corpus import Buckets, EncoderSettings, Picture
    from trnconv.corpus.latents.encoding import Encoder
    from trnconv.corpus.videos.decoder import Decoder
    from trnconv.corpus.videos.video_reader import VideoRequest

    sound = [str(path) for path in sorted(corpus.iterdir()) if path not in spoilt(corpus)]
    buckets = Buckets((Picture(64, 64),), (9, 17))
    before = torch.get_num_threads()
    decoder = Decoder(VideoRequest(buckets))
    try:
        encoder = Encoder(EncoderSettings(model="wan2.1", reduced=True))
        for url in sound[:3]:  # until both shapes are known
            encoder.encode(decoder.decode(url).windows[0][1])
        start, cpu_start = time.monotonic(), time.process_time()
        for url in sound[3 : 3 + clips]:
            encoder.encode(decoder.decode(url).windows[0][1])
        return (time.monotonic() - start) / clips, (time.process_time() - cpu_start) / clips
    finally:
        decoder.close()
        torch.set_num_threads(before)


@pytest.fixture(scope="module")
def loop_before(corpus):
    return plain_loop(corpus, 30)


@pytest.fixture(scope="module")
def undisturbed(loop_before, corpus, environment, tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed") / "latents"
    started = time.monotonic()
    summary = Driver(corpus, out, environment).ended()
    return out, summary, time.monotonic() - started


def lasting(out):
    """Every file but those that say when, and by whom."""
    names = ("*.json", "plan/**/*.*", "manifest/*", "shards/*/*", "records/*/*")
    return {
        str(path.relative_to(out)): path.read_bytes() for one in names for path in out.glob(one)
    }


def test_every_clip_is_encoded_and_the_spoilt_ones_are_reported(undisturbed, corpus):
    out, summary, _ = undisturbed
    assert (summary["encoded"], summary["shards_done_now"], summary["complete"]) == (
        CLIPS,
        SHARDS,
        True,
    )
    assert sorted(bad["url"] for bad in summary["bad"]) == [str(path) for path in spoilt(corpus)]
    assert all(bad["reason"] for bad in summary["bad"])
    assert len(summary["workers"]) == WORKERS
    rows = [row for path in out.glob("manifest/*.parquet") for row in read_rows(path.read_bytes())]
    ids = [row["id"] for row in rows if row["file"]]
    assert len(ids) == len(set(ids)) == CLIPS


def test_two_workers_and_the_driver_are_killed_and_nobody_can_tell(
    undisturbed, corpus, environment, tmp_path
):
    reference, _, _ = undisturbed
    out = tmp_path / "latents"
    driver = Driver(corpus, out, environment)
    try:
        wait_until(driver.done, LIMIT_S, "a shard")
        heard = listeners({driver.process.pid, *descendants(driver.process.pid)})
        assert heard
        assert heard <= LOOPBACK
        for killed in (1, 2):
            wait_until(lambda least=2 * killed: driver.done() >= least, LIMIT_S, "shards")
            kill(driver.workers()[0])
        wait_until(
            lambda: len(list(out.glob("workers/*.json"))) >= WORKERS + 2, LIMIT_S, "restarts"
        )
    finally:
        driver.kill()
    before = driver.done()
    assert 4 <= before < SHARDS
    assert not (out / "manifest.json").exists()
    summary = Driver(corpus, out, environment).ended()
    assert summary["shards_done_now"] == SHARDS - before
    assert lasting(out) == lasting(reference)
    assert not list(out.glob("[mrs]*/*/*.unfinished"))  # of metrics, records and shards


def small(corpus, folder, clips=40):
    """A folder of some sound videos of the corpus."""
    videos = folder / "videos"
    videos.mkdir()
    sound = [path for path in sorted(corpus.iterdir()) if path not in spoilt(corpus)]
    for path in sound[:clips]:
        os.link(path, videos / path.name)
    return videos


def encoded_by_a_loop(videos, out, environment):
    command = [sys.executable, "-m", "trnconv", "encode", str(videos), "--out", str(out), *OPTIONS]
    subprocess.run(command, check=True, env=environment, timeout=limit_s(LIMIT_S))
    return lasting(out)


def keepers(out):
    """Process ids of those who hold leases."""
    found = set()
    for path in out.glob("leases/0*/*.json"):
        with suppress(OSError, ValueError):  # it was given back while we looked
            found.add(int(json.loads(path.read_text())["process"].split("-")[1]))
    return found


def test_a_keeper_is_killed_and_the_result_is_that_of_a_loop(corpus, environment, tmp_path):
    """Its shards are lost, and done again in the next pass."""
    videos = small(corpus, tmp_path)
    driver = Driver(videos, tmp_path / "latents", environment)
    try:
        wait_until(driver.done, LIMIT_S, "a shard")
        (keeper,) = wait_until(lambda: keepers(driver.out), LIMIT_S, "leases")
        assert keeper in descendants(driver.process.pid)
        kill(keeper)
        assert driver.ended()["complete"]
    finally:
        driver.kill()
    assert keeper not in driver.workers()
    assert lasting(driver.out) == encoded_by_a_loop(videos, tmp_path / "loop", environment)


DIES = """
import os, signal
from trnconv.cli import main
from trnconv.corpus.engines import ray_data

class Deadly:
    def encode(self, pixels):
        os.kill(os.getpid(), signal.SIGKILL)

class DyingActor:
    def __init__(self, job, keepers):
        from trnconv.corpus.engines import ray_data
        self.whole = ray_data.ClipActor(job, keepers)
        ended = self.whole._ended
        self.whole._ended = lambda encoder, row: ended(
            Deadly() if row.id == {poison!r} else encoder, row
        )

    def __call__(self, rows):
        return self.whole(rows)

ray_data.ClipActor = DyingActor  # here, and not in the processes of Ray
main()
"""


def test_a_clip_that_actors_die_of_is_set_aside_and_costs_no_other(corpus, environment, tmp_path):
    videos = small(corpus, tmp_path)
    reference = encoded_by_a_loop(videos, tmp_path / "loop", environment)
    poison = clip_of(str(sorted(videos.iterdir())[7])).id
    script = ("-c", DIES.format(poison=poison))
    driver = Driver(videos, tmp_path / "latents", environment, script)
    try:
        summary = driver.ended()
    finally:
        driver.kill()
    assert [(bad["id"], bad["reason"]) for bad in summary["bad"]] == [
        (poison, "3 workers died while they encoded it")
    ]
    assert summary["encoded"] == 39
    assert len(list(driver.out.glob("workers/*.json"))) == WORKERS + 3
    records = [json.loads(data) for name, data in lasting(driver.out).items() if "records" in name]
    values = {row["id"]: row["sha256"] for record in records for row in record["clips"]}
    wanted = {
        row["id"]: row["sha256"]
        for name, data in reference.items()
        if "records" in name
        for row in json.loads(data)["clips"]
    }
    assert values == {name: value for name, value in wanted.items() if name != poison}


def test_a_keepers_refusal_ends_the_job_in_its_words(corpus, environment, tmp_path):
    out = tmp_path / "latents"
    (out / "leases/000000").mkdir(parents=True)
    ended = json.dumps({"process": "x-1-1", "worker": "w", "until": 0.0})
    for attempt in range(1, 101):
        (out / f"leases/000000/00000000.{attempt}.json").write_text(ended)
    driver = Driver(small(corpus, tmp_path, 3), out, environment)
    try:
        _, err = driver.process.communicate(timeout=limit_s(LIMIT_S))
    finally:
        driver.kill()
    assert driver.process.returncode == 2, err
    assert "100 attempts at 000000/00000000 have ended without a result" in err
    assert "Traceback" not in err


SLOW = """
import time
from pathlib import Path
from trnconv.cli import main
from trnconv.corpus.latents.clip_latents import ClipLatents
from trnconv.corpus.engines import ray_data

def decoded_clips(rows, job, keepers):
    for row in ray_data.decoded_clips(rows, job, keepers):
        (name,) = row["id"].to_pylist()
        Path({log!r}, f"{{time.time():.6f}}+{{name}}").touch()
        yield row

class SlowActor:
    def __init__(self, job, keepers):
        from trnconv.corpus.engines import ray_data
        self.whole = ray_data.ClipActor(job, keepers)
        self.whole._ended = self.ended

    def ended(self, encoder, row):
        time.sleep(0.5)
        Path({log!r}, f"{{time.time():.6f}}-{{row.id}}").touch()
        return ClipLatents(row.id, reason="of no interest")

    def __call__(self, rows):
        return self.whole(rows)

ray_data.ClipActor, ray_data.decoded_clips = SlowActor, decoded_clips
main()
"""


def test_decoding_waits_when_its_share_of_memory_is_full(environment, tmp_path):
    """Of 80 MB, Ray Data may use half: 11 clips of 3.3 MB, not 60. Each hand has a few more."""
    videos, log = tmp_path / "videos", tmp_path / "log"
    log.mkdir()
    write_corpus(videos, 60, lengths=(17,), height=256, width=256)
    small_store = {**environment, "RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES": "80000000"}
    script = ("-c", SLOW.format(log=str(log)))
    driver = Driver(videos, tmp_path / "latents", small_store, script, ("--size", "256x256"))
    try:
        assert driver.ended()["set_aside"] == 60
    finally:
        driver.kill()
    steps = [1 if "+" in path.name else -1 for path in sorted(log.iterdir())]
    assert steps.count(1) == steps.count(-1) == 60
    assert max(accumulate(steps)) <= 11 + 4 * WORKERS
    assert not list(Path(environment["RAY_TMPDIR"]).rglob("ray_spilled_objects*/*"))


def all_at_work(metrics):
    """When all workers were at work: after each one's first shard, until the first has no more.

    Before, processes start and load torch; after, some have nothing left to do.
    """
    ends = {}
    for one in metrics:
        ends.setdefault(one["worker"], []).append(one["started"] + one["seconds"])
    return max(min(each) for each in ends.values()), min(max(each) for each in ends.values())


def within(metrics, span, name):
    """The sum of a number over a span of time; a shard that is partly in it counts in part."""
    total = 0.0
    for one in metrics:
        start, end = one["started"], one["started"] + one["seconds"]
        total += one[name] * max(0.0, min(end, span[1]) - max(start, span[0])) / (end - start)
    return total


def metrics_of(out):
    """What each worker had to do with each shard."""
    shards = [json.loads(path.read_text()) for path in out.glob("metrics/*/*.json")]
    return [share for shard in shards for share in shard["shares"]]


def test_workers_hardly_ever_wait_for_ray(undisturbed):
    """Clips lie ready when a worker is: decoding and Ray are ahead of it."""
    metrics = metrics_of(undisturbed[0])
    span = all_at_work(metrics)
    assert within(metrics, span, "clips") > CLIPS / 3
    assert within(metrics, span, "waiting_s") <= 0.1 * within(metrics, span, "seconds")


def test_the_clips_of_a_shard_go_to_several_workers(undisturbed):
    shards = [json.loads(path.read_text()) for path in undisturbed[0].glob("metrics/*/*.json")]
    assert len(shards) == SHARDS
    assert sum(len(shard["shares"]) > 1 for shard in shards) > SHARDS / 2
    assert sum(share["clips"] for shard in shards for share in shard["shares"]) == CLIPS


def test_workers_are_as_fast_as_the_cores_allow(undisturbed, loop_before, corpus, capsys):
    """0.9 x cores of a plain loop, which runs before and after.

    Only a quiet machine can tell: the loop has a core to itself, and takes equally long both times.
    That is asked of the loop alone, never of the result.
    """
    out, _, seconds = undisturbed
    metrics = metrics_of(out)
    span = all_at_work(metrics)
    rate = within(metrics, span, "clips") / (span[1] - span[0])
    loops = [loop_before, plain_loop(corpus, 30)]
    loop_s = sum(wall for wall, _ in loops) / 2
    cores = min(WORKERS, len(os.sched_getaffinity(0)))
    own_core = min(cpu / wall for wall, cpu in loops)
    drift = abs(loops[0][0] - loops[1][0]) / loop_s
    with capsys.disabled():
        sys.stdout.write(
            f"\n{WORKERS} Ray workers on {cores} cores: {rate:.1f} clips/s, a plain loop"
            f" {1 / loop_s:.1f}: {rate * loop_s:.2f} x; with start-up {CLIPS / seconds:.1f}."
            f" The loop had {own_core:.0%} of a core, and drifted by {drift:.0%}.\n"
        )
    if own_core < 0.95 or drift > 0.05:
        pytest.skip(
            f"not a quiet machine: the loop had {own_core:.0%} of a core, drift {drift:.0%}"
        )
    assert rate * loop_s >= 0.9 * cores


class DeadRay:
    """Ray without a cluster: it notes how it is asked to connect."""

    def __init__(self):
        self.said = []

    def init(self, **options):
        self.said.append(options.get("address"))
        raise ConnectionError("nobody there\nand more")


@pytest.mark.parametrize(
    ("option", "variable", "wanted"),
    [
        (None, "10.0.0.1:6379", "10.0.0.1:6379"),
        ("auto", "10.0.0.1:6379", "auto"),
        ("local", "10.0.0.1:6379", "local"),
        (None, "", "local"),
    ],
)
def test_the_address_is_the_options_else_the_environments(monkeypatch, option, variable, wanted):
    """With RAY_ADDRESS set, Ray refused to start one here, with a traceback."""
    dead = DeadRay()
    data = SimpleNamespace()
    monkeypatch.setitem(sys.modules, "ray", dead)
    monkeypatch.setitem(sys.modules, "ray.data", data)
    monkeypatch.setenv("RAY_ADDRESS", variable)
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    refusal = ConnectionError if wanted == "local" else TrnconvError
    words = "nobody there" if wanted == "local" else f"no Ray cluster at {wanted}: nobody there"
    cluster = ray_data.Cluster(1, address=option)
    with pytest.raises(refusal, match=words), ray_data._connected(cluster, 1):
        pass
    assert dead.said == [wanted]
