"""Two loops with nothing around them, and two ranks of a job, on the same videos."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

_LOOP = """
import sys, time
from trnconv.corpus import Buckets, EncoderSettings, Picture
from trnconv.corpus.videos.decoder import Decoder
from trnconv.corpus.latents.encoding import Encoder
from trnconv.corpus.videos.video_reader import VideoRequest
urls = sys.argv[1:]
decoder = Decoder(VideoRequest(Buckets((Picture(64, 64),), (9,))))
encoder = Encoder(EncoderSettings(model="wan2.1", reduced=True))
encoder.encode(decoder.decode(urls[0]).windows[0][1])
start = time.perf_counter()
for url in urls:
    encoder.encode(decoder.decode(url).windows[0][1])
print(len(urls) / (time.perf_counter() - start))
decoder.close()
"""
_SIDES = 2


def bare_rate(folder: Path, clips: int) -> float:
    """Clips a second of two loops that run side by side."""
    urls = _videos(folder / "videos", _SIDES * clips)
    command = [sys.executable, "-c", _LOOP]
    loops = [
        subprocess.Popen([*command, *urls[side::_SIDES]], stdout=subprocess.PIPE, text=True)  # noqa: S603
        for side in range(_SIDES)
    ]
    return sum(float(loop.communicate()[0]) for loop in loops)


def ranks_rate(folder: Path, clips: int) -> float:
    """Clips a second of two ranks, from each one's second shard to its last."""
    videos, out = folder / "videos", folder / "latents"
    _videos(videos, _SIDES * clips)
    command = [sys.executable, "-m", "trnconv", "encode", str(videos), "--out", str(out)]
    command += "--model wan2.1 --reduced --random-weights --size 64x64 --frames 9".split()
    command += "--clips-per-shard 8 --dtype bfloat16 --engine torchrun --json".split()
    ranks = [
        subprocess.Popen(  # noqa: S603
            command,
            stdout=subprocess.DEVNULL,
            env={
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(_SIDES),
                "TRNCONV_RUN_ID": "benchmark",
            },
        )
        for rank in range(_SIDES)
    ]
    for rank in ranks:
        rank.wait()
    spans: dict[str, list[tuple[float, float, int]]] = {}
    for path in out.glob("metrics/*/*.json"):
        said = json.loads(path.read_text(encoding="utf-8"))
        span = (said["started"], said["started"] + said["seconds"], said["clips"])
        spans.setdefault(said["worker"], []).append(span)
    return sum(_rate(sorted(shards)) for shards in spans.values())


def _rate(shards: list[tuple[float, float, int]]) -> float:
    """Of one rank; its first shard starts its decoder and meets the shapes."""
    return sum(clips for _, _, clips in shards[1:]) / (shards[-1][1] - shards[0][1])


def _videos(folder: Path, count: int) -> list[str]:
    import av

    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    for number in range(count):
        path = folder / f"{number:04}.mp4"
        if path.exists():
            continue
        blocks = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        with av.open(str(path), "w") as container:
            stream = container.add_stream("mpeg4", rate=16)
            stream.width = stream.height = 64
            for frame in range(9):
                moved = np.kron(np.roll(blocks, frame, 1), np.ones((8, 8, 1), np.uint8))
                container.mux(stream.encode(av.VideoFrame.from_ndarray(moved, "rgb24")))
            container.mux(stream.encode())
    return [str(folder / f"{number:04}.mp4") for number in range(count)]
