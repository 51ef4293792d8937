"""`python -m benchmarks corpus`: what planning, resuming and encoding a corpus costs here.

Clips are made up. Planning reads a list of addresses; resuming runs against a stand-in for S3 on
loopback (moto, of the extra `chaos`) and counts its requests; encoding compares two ranks with two
bare loops of decoding and encoding that run side by side on the same cores.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.corpus_loops import bare_rate, ranks_rate
from benchmarks.corpus_store import StandIn, filled
from trnconv.corpus.shards.again import Retry, reopen_set_aside
from trnconv.corpus.shards.completion import open_segments, open_shards, reopen_damaged
from trnconv.corpus.shards.plan import extend, read_plan
from trnconv.corpus.storage.store import Folder
from trnconv.corpus.videos.limits import Limits
from trnconv.corpus.videos.listing import find_clips

HELP = "seconds, memory and requests of planning and resuming a corpus; throughput of ranks"
PARTS = ("plan", "resume", "throughput")
CLIPS_PER_SHARD = 64
_BILLION = 10**9
_REQUEST_S = 0.025  # of a store that is not on this machine
_AT_ONCE = 16  # requests; trnconv.corpus.shards.completion has as many


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    parser.add_argument("--clips", type=int, default=1_000_000)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--encoded", type=int, default=40, help="clips that each loop encodes")
    parser.add_argument("--one", choices=PARTS, help="run a part in this process, print JSON")


def main(options: argparse.Namespace) -> int:
    """Each part in a process of its own, so that peaks of memory are its own."""
    if options.one:
        print(json.dumps(_RUN[options.one](options)))
        return 0
    for part in options.parts:
        command = [sys.executable, "-m", "benchmarks", "corpus", "--one", part]
        command += ["--clips", str(options.clips), "--encoded", str(options.encoded)]
        ended = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
        _SHOW[part](json.loads(ended.stdout.splitlines()[-1]))
    return 0


def plan(options: argparse.Namespace) -> dict[str, Any]:
    """Plan a list of addresses, and plan it again when nothing is new."""
    with tempfile.TemporaryDirectory() as folder:
        source = _listed(Path(folder), options.clips)
        out = Folder(f"{folder}/out")
        start, cpu = time.perf_counter(), time.process_time()
        made, _ = extend(read_plan(out), find_clips([source]), CLIPS_PER_SHARD)
        seconds, cpu_s = time.perf_counter() - start, time.process_time() - cpu
        peak = _peak_bytes()
        start = time.perf_counter()
        extend(read_plan(out), find_clips([source]), CLIPS_PER_SHARD)
        again = time.perf_counter() - start
        held = sum(path.stat().st_size for path in Path(folder, "out").rglob("*.parquet"))
    return {
        "clips": made.clips,
        "segments": len(made.segments),
        "seconds": seconds,
        "cpu_s": cpu_s,
        "peak_bytes": peak,
        "again_s": again,
        "plan_bytes": held,
    }


def resume(options: argparse.Namespace) -> dict[str, Any]:
    """Find out what is left of a job of which all but the last segment's last shards are done."""
    with tempfile.TemporaryDirectory() as folder, StandIn() as store:
        source = _listed(Path(folder), options.clips)
        out = Folder(f"{store.url}/latents")
        made, _ = extend(read_plan(out), find_clips([source]), CLIPS_PER_SHARD)
        filled(store, out, made)
        store.requests.clear()
        start, cpu = time.perf_counter(), time.process_time()
        shards, _ = extend(read_plan(out), find_clips([source]), CLIPS_PER_SHARD)
        planned = sum(store.requests.values())
        damaged = reopen_damaged(shards)
        reopen_set_aside(shards, Retry((), Limits().deaths))
        left = [shard for segment in open_segments(shards) for shard in open_shards(out, segment)]
        return {
            "clips": shards.clips,
            "segments": len(shards.segments),
            "left": len(left),
            "damaged": len(damaged),
            "seconds": time.perf_counter() - start,
            "cpu_s": time.process_time() - cpu,
            "peak_bytes": _peak_bytes(),
            "plan_requests": planned,
            "requests": sum(store.requests.values()),
        }


def throughput(options: argparse.Namespace) -> dict[str, Any]:
    """Clips a second of two bare loops, and of two ranks after them."""
    with tempfile.TemporaryDirectory() as folder:
        bare = bare_rate(Path(folder), options.encoded)
        ranks = ranks_rate(Path(folder), options.encoded)
    return {"bare": bare, "ranks": ranks, "load": os.getloadavg()[0]}


def _listed(folder: Path, clips: int) -> str:
    path = folder / "all.txt"
    with path.open("w", encoding="utf-8") as file:
        for number in range(clips):
            file.write(f"s3://bucket/clips/{number // 1000:06}/{number:010}.mp4\n")
    return str(path)


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _show_plan(said: dict[str, Any]) -> None:
    times = _BILLION / said["clips"]
    print(
        f"plan        {said['clips']:,} clips from a list: {said['seconds']:.1f} s"
        f" ({said['cpu_s']:.1f} s of CPU), peak {said['peak_bytes'] / 1e6:.0f} MB,"
        f" {said['segments']} segments, {said['plan_bytes'] / said['clips']:.0f} B a clip;"
        f" once more with nothing new: {said['again_s']:.1f} s"
    )
    print(
        f"  on paper  10^9 clips: {said['cpu_s'] * times / 3600:.1f} h of CPU,"
        f" {said['plan_bytes'] * times / 1e9:.0f} GB of plan,"
        f" {said['segments'] * times:,.0f} requests to write it"
    )


def _show_resume(said: dict[str, Any]) -> None:
    times = _BILLION / said["clips"]
    print(
        f"resume      {said['clips']:,} clips against the stand-in: {said['seconds']:.1f} s"
        f" ({said['cpu_s']:.1f} s of CPU, the stand-in's included), peak"
        f" {said['peak_bytes'] / 1e6:.0f} MB, {said['requests']} requests"
        f" ({said['plan_requests']} for the plan), {said['left']} shards left,"
        f" {said['damaged']} segments damaged"
    )
    print(
        f"  implied   at {_REQUEST_S * 1e3:.0f} ms a request, one after the other:"
        f" {said['requests'] * _REQUEST_S:.1f} s of waiting"
    )
    looked = said["requests"] - said["plan_requests"]
    waits = (said["plan_requests"] + looked / _AT_ONCE) * _REQUEST_S * times
    print(
        f"  on paper  10^9 clips: {said['requests'] * times:,.0f} requests,"
        f" {waits / 3600:.1f} h of waiting for them ({_AT_ONCE} at a time but for the plan),"
        f" {said['cpu_s'] * times / 3600:.1f} h of CPU, the stand-in's included"
    )


def _show_throughput(said: dict[str, Any]) -> None:
    print(
        f"throughput  two ranks {said['ranks']:.2f} clips/s, two bare loops {said['bare']:.2f}:"
        f" {said['ranks'] / said['bare']:.2f} x; load {said['load']:.1f} of"
        f" {len(os.sched_getaffinity(0))} cores"
    )


_RUN = {"plan": plan, "resume": resume, "throughput": throughput}
_SHOW = {"plan": _show_plan, "resume": _show_resume, "throughput": _show_throughput}
