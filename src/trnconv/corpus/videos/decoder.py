"""Decoding in a process that can be killed: a video is decoded, or bad, and never our end."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import IO, Any

import numpy as np

from trnconv.corpus.storage.document import read_json
from trnconv.corpus.videos.limits import MESSAGE_BYTES
from trnconv.corpus.videos.reasons import SLOW
from trnconv.corpus.videos.video_file import fetched
from trnconv.corpus.videos.video_reader import RGB, BadVideoError, Pixels, VideoRequest, Window
from trnconv.errors import TrnconvError
from trnconv.records import from_json, to_json

_KEPT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "SYSTEMROOT")  # no credentials


@dataclass(frozen=True, eq=False)
class DecodedVideo:
    """Windows of a video with their pixels, (frames, height, width, RGB) each, and its source."""

    windows: tuple[tuple[Window, Pixels], ...]
    fps: float
    source_bytes: int
    source_sha256: str


class Decoder:
    """One process that decodes one video at a time, and another one when that has died."""

    def __init__(self, request: VideoRequest) -> None:
        self._asked = request
        self._child: _Child | None = None

    def decode(self, url: str) -> DecodedVideo:
        """Pixels of the video at an address; a BadVideoError is its own fault."""
        data = fetched(url, self._asked.limits.file_bytes)
        said = f"{len(data)}", hashlib.sha256(data).hexdigest()
        with _shared() as source, _shared() as target:
            source.write(data)
            source.flush()
            del data
            answer = self._answer(source, target)
            if "bad" in answer:
                raise BadVideoError(str(answer["bad"]))
            windows = tuple(from_json(Window, window) for window in answer["windows"])
            self._require_asked(windows)
            pixels = _mapped(target, windows, self._asked.buckets.longest)
        return DecodedVideo(pixels, float(answer["fps"]), int(said[0]), said[1])

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def _require_asked(self, windows: tuple[Window, ...]) -> None:
        """What the process says is a video's word, perhaps: only buckets that were asked for."""
        buckets = self._asked.buckets
        of_buckets = all(
            window.picture in buckets.pictures and window.frames in buckets.lengths
            for window in windows
        )
        if not of_buckets or not 0 < len(windows) <= self._asked.windows:
            raise BadVideoError("its decoder answered with pictures that were not asked for")

    def _answer(self, source: IO[bytes], target: IO[bytes]) -> Any:
        """What the process says; a video that outlives none of its attempts is bad."""
        reason = ""
        for _ in range(self._asked.limits.deaths):
            source.seek(0)
            target.seek(0)
            target.truncate()
            try:
                return self._asked_once(source, target)
            except ChildProcessError as death:
                reason = str(death)
                self.close()
        raise BadVideoError(f"{self._asked.limits.deaths} decoders died of it: {reason}")

    def _asked_once(self, source: IO[bytes], target: IO[bytes]) -> Any:
        child = self._child = self._child or _started()
        message = json.dumps(to_json(self._asked)).encode()
        assert len(message) < MESSAGE_BYTES
        try:
            socket.send_fds(child.link, [message], [source.fileno(), target.fileno()])
            answer = read_json(_line(child.link, monotonic() + self._asked.limits.decode_s))
        except TimeoutError as late:
            raise self._late() from late
        except OSError:
            answer = None
        if answer is None and child.process.wait() == -signal.SIGALRM:  # it has a clock of its own
            raise self._late()
        if answer is None:
            raise child.death()
        return answer

    def _late(self) -> BadVideoError:
        """Said after one attempt: on a machine that is this busy, the next would be late, too."""
        self.close()
        return BadVideoError(f"{SLOW}: no end after {self._asked.limits.decode_s:g} s")


@dataclass(frozen=True)
class _Child:
    """The process, our end of its line, and what it writes when it fails."""

    process: subprocess.Popen[bytes]
    link: socket.socket
    errors: IO[bytes]

    def end(self) -> None:
        self.link.close()
        self.process.kill()
        self.process.wait()
        self.errors.close()

    def death(self) -> Exception:
        """Why it hung up. A signal may be the video's fault; an exception of Python's is not."""
        code = self.process.wait()
        if code < 0:
            return ChildProcessError(f"signal {-code}")
        self.errors.seek(0)
        lines = self.errors.read().decode("utf-8", "replace").strip().splitlines()
        said = lines[-1] if lines else f"exit code {code}"
        return TrnconvError(f"the process that decodes videos failed: {said}. No clip is blamed.")


@contextmanager
def _shared() -> Iterator[IO[bytes]]:
    """A file without a name, in memory where the system can: gone with the last who has it open."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("trnconv"), "w+b") as file:
            yield file
    else:
        with tempfile.TemporaryFile() as file:
            yield file


def _mapped(
    file: IO[bytes], windows: tuple[Window, ...], longest: int
) -> tuple[tuple[Window, Pixels], ...]:
    pixels = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), np.uint8)
    mapped = []
    for number, window in enumerate(windows):
        frame = window.picture.pixels * RGB
        start = number * longest * frame
        part = pixels[start : start + window.frames * frame]
        size = (window.frames, window.picture.height, window.picture.width, RGB)
        mapped.append((window, part.reshape(size)))
    return tuple(mapped)


def _started() -> _Child:
    ours, theirs = socket.socketpair()
    package = str(Path(__file__).parents[3])
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    kept["PYTHONPATH"] = os.pathsep.join([package, *filter(None, [kept.get("PYTHONPATH")])])
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
    with theirs:
        process = subprocess.Popen(  # noqa: S603 - this interpreter and a module of ours
            [sys.executable, "-m", "trnconv.corpus.videos.decoder_process", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=kept,
        )
    return _Child(process, ours, errors)


def _line(link: socket.socket, end: float) -> bytes | None:
    """A line of an answer; None if the process hangs up before."""
    received = b""
    while not received.endswith(b"\n"):
        left = end - monotonic()
        if left <= 0:
            raise TimeoutError
        link.settimeout(left)
        part = link.recv(MESSAGE_BYTES)
        if not part:
            return None
        received += part
    return received
