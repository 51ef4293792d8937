"""Decoding what nobody vouches for: decoded or bad with a reason, and nothing else happens."""

import hashlib
import os
import signal
import socket
import subprocess
import time
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import pytest

from corpus_videos import spoil, write_corpus, write_video
from hostile_videos import SOUND, write_hostile
from trnconv.corpus.videos.buckets import Buckets, Picture
from trnconv.corpus.videos.clips import clip_of
from trnconv.corpus.videos.decoder import Decoder
from trnconv.corpus.videos.limits import Limits
from trnconv.corpus.videos.listing import list_clips
from trnconv.corpus.videos.video_file import fetched
from trnconv.corpus.videos.video_reader import BadVideoError, VideoRequest
from trnconv.errors import TrnconvError

pytestmark = pytest.mark.ray

READING = VideoRequest(Buckets((Picture(32, 32),), (5, 9)), limits=Limits(decode_s=30.0))


@pytest.fixture
def decoder():
    with closing(Decoder(READING)) as made:
        yield made


def test_a_video_comes_with_its_pixels_and_its_source(decoder, tmp_path):
    write_video(tmp_path / "v.mp4", frames=7, height=32, width=32)
    video = decoder.decode(str(tmp_path / "v.mp4"))
    ((window, pixels),) = video.windows
    data = (tmp_path / "v.mp4").read_bytes()
    assert (window.frames, window.picture, window.start_s) == (5, Picture(32, 32), 0.0)
    assert pixels.shape == (5, 32, 32, 3)
    assert (video.fps, video.source_bytes) == (16.0, len(data))
    assert video.source_sha256 == hashlib.sha256(data).hexdigest()


def test_pixels_of_one_clip_outlast_the_next(decoder, tmp_path):
    paths = write_corpus(tmp_path, 2, lengths=(9,), height=32, width=32)
    ((_, first),) = decoder.decode(str(paths[0])).windows
    before = first.copy()
    ((_, second),) = decoder.decode(str(paths[1])).windows
    assert (first == before).all()
    assert (first != second).any()


def test_windows_follow_each_other(tmp_path):
    write_video(tmp_path / "v.mp4", frames=24, height=32, width=32)
    with closing(Decoder(replace(READING, windows=4))) as several:
        windows = several.decode(str(tmp_path / "v.mp4")).windows
    with closing(Decoder(VideoRequest(Buckets((Picture(32, 32),), (24,))))) as one:
        ((_, whole),) = one.decode(str(tmp_path / "v.mp4")).windows
    assert [(window.frames, window.start_s) for window, _ in windows] == [
        (9, 0.0),
        (9, 9 / 16),
        (5, 18 / 16),
    ]
    for (_, pixels), start in zip(windows, (0, 9, 18), strict=True):
        assert (pixels == whole[start : start + len(pixels)]).all()


class Watch:
    """Whether anybody connects to a port of this machine, or listens on it with UDP or TCP."""

    def __init__(self):
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.seen, self.over = [], Event()
        self.server.settimeout(0.02)
        self.thread = Thread(target=self._look)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self.server.close()

    def _look(self):
        mine = f":{self.port:04X}"
        while not self.over.is_set():
            with suppress(TimeoutError):
                self.seen.append(self.server.accept()[1])
            for kind in ("udp", "udp6", "tcp", "tcp6"):
                lines = Path(f"/proc/net/{kind}").read_text().splitlines()[1:]
                found = [line.split()[1] for line in lines if line.split()[1].endswith(mine)]
                own = 1 if kind == "tcp" else 0  # this server
                self.seen += found[own:]


def decoded_or_why(decoder, url):
    try:
        return decoder.decode(url)
    except BadVideoError as bad:
        return str(bad)


def test_forty_kinds_of_file_are_decoded_or_set_aside_and_nothing_else_happens(tmp_path):
    outside = tmp_path / "secret" / "outside.mp4"
    outside.parent.mkdir()
    write_video(outside, frames=9, height=32, width=32, seed=7)
    with Watch() as watch, closing(Decoder(READING)) as decoder:
        made = write_hostile(tmp_path / "corpus", outside, watch.port)
        assert len(made) >= 40
        listed = {clip.url for clip in list_clips([str(tmp_path / "corpus")])}
        assert listed == {str(path) for path in made.values()}
        ended, start = {}, time.monotonic()
        for kind, path in made.items():
            ended[kind] = decoded_or_why(decoder, clip_of(str(path)).url)
        assert time.monotonic() - start < 30 * len(made)
    assert watch.seen == []
    assert all(ended.values())
    assert {kind for kind, what in ended.items() if not isinstance(what, str)} == SOUND
    secret = hashlib.sha256(outside.read_bytes()).hexdigest()
    assert all(ended[kind].source_sha256 != secret for kind in SOUND)


def test_ffmpeg_would_have_followed_such_a_file(tmp_path):
    """Without the lists of formats and protocols, it does: the test above can fail."""
    import av

    outside = tmp_path / "outside.mp4"
    write_video(outside, frames=9, height=32, width=32)
    (tmp_path / "x.mp4").write_text(f"ffconcat version 1.0\nfile '{outside}'\n")
    with av.open(
        str(tmp_path / "x.mp4"), container_options={"safe": "0"}, format="concat"
    ) as container:
        assert sum(1 for _ in container.decode(video=0)) == 9


@pytest.mark.parametrize("way", range(5))
def test_a_spoilt_video_is_bad_with_a_reason(decoder, tmp_path, way):
    (path,) = write_corpus(tmp_path, 1, height=32, width=32)
    spoil(path, way)
    with pytest.raises(BadVideoError, match=r"not decodable: .+|frame 0 is damaged|0 frames"):
        decoder.decode(str(path))


def test_limits_of_size_pixels_and_time_have_words(tmp_path):
    write_video(tmp_path / "v.mp4", frames=9, height=32, width=32)
    url = str(tmp_path / "v.mp4")
    size = (tmp_path / "v.mp4").stat().st_size
    for limits, words in (
        (Limits(file_bytes=size - 1), f"{size} bytes: a file has at most {size - 1}"),
        (Limits(frame_pixels=1023), "32x32 pixels: a frame has at most 1023"),
        (Limits(decode_s=0.001, deaths=2), "too slow: no end after 0.001 s"),
    ):
        with (
            closing(Decoder(replace(READING, limits=limits))) as decoder,
            pytest.raises(BadVideoError, match=words),
        ):
            decoder.decode(url)
    with pytest.raises(TrnconvError, match="greater than 0"):
        Limits(deaths=0)


def test_a_decoder_that_runs_out_of_time_is_not_asked_again_at_once(tmp_path, monkeypatch):
    write_video(tmp_path / "v.mp4", frames=9, height=32, width=32)
    asked = []
    once = Decoder._asked_once
    monkeypatch.setattr(Decoder, "_asked_once", lambda *of: (asked.append(of), once(*of))[1])
    late = Decoder(replace(READING, limits=Limits(decode_s=0.001)))
    with closing(late), pytest.raises(BadVideoError, match="too slow"):
        late.decode(str(tmp_path / "v.mp4"))
    assert len(asked) == 1


def test_a_decoder_that_is_killed_is_replaced(decoder, tmp_path):
    write_video(tmp_path / "v.mp4", frames=9, height=32, width=32)
    decoder.decode(str(tmp_path / "v.mp4"))
    os.kill(decoder._child.process.pid, signal.SIGKILL)
    assert decoder.decode(str(tmp_path / "v.mp4")).windows


def test_a_decoder_that_cannot_run_blames_no_clip(tmp_path, monkeypatch):
    write_video(tmp_path / "v.mp4", frames=9, height=32, width=32)
    broken = tmp_path / "broken" / "av"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise RuntimeError('no FFmpeg here')")
    monkeypatch.setattr("trnconv.corpus.videos.decoder._KEPT", ("PATH",))
    started = subprocess.Popen

    def with_broken_av(*arguments, env, **options):
        path = f"{broken.parent}{os.pathsep}{env['PYTHONPATH']}"
        return started(*arguments, env={**env, "PYTHONPATH": path}, **options)

    monkeypatch.setattr("subprocess.Popen", with_broken_av)
    with (
        closing(Decoder(READING)) as decoder,
        pytest.raises(TrnconvError, match=r"no FFmpeg here\. No clip is blamed") as refusal,
    ):
        decoder.decode(str(tmp_path / "v.mp4"))
    assert not isinstance(refusal.value, BadVideoError)


def test_a_chain_inside_of_a_name_is_not_followed(tmp_path):
    """fsspec would read `a::memory://b` from memory."""
    import fsspec

    fsspec.filesystem("memory").pipe_file("/hidden.mp4", b"other")
    for url in ("memory://x::memory://hidden.mp4", str(tmp_path / "x::memory://hidden.mp4")):
        with pytest.raises(BadVideoError, match="no such file"):
            fetched(url, 1000)
