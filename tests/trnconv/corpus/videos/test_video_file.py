"""Files of videos: there, or missing by a store's own word, or not to be had just now."""

import errno
import os

import pytest

from benchmarks.corpus_store import BUCKET, StandIn
from http_videos import HttpVideos, free_port
from trnconv.corpus.videos import video_file
from trnconv.corpus.videos.reasons import UNREACHABLE, UNREADABLE, kind_of
from trnconv.corpus.videos.video_file import fetched
from trnconv.corpus.videos.video_reader import BadVideoError

pytestmark = pytest.mark.ray

MOST = 1000
DATA = b"a video, perhaps"


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch):
    monkeypatch.setattr(video_file, "WAITS_S", (0.0, 0.0))


@pytest.fixture(scope="module")
def web():
    with HttpVideos(DATA) as server:
        yield server


def reason(url, most=MOST):
    with pytest.raises(BadVideoError) as bad:
        fetched(url, most)
    return str(bad.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("404", "missing: no such file"),
        ("410", "missing: no such file"),
        ("401", "unreachable: HTTP status 401"),
        ("403", "unreachable: HTTP status 403"),
        ("429", "unreachable: HTTP status 429"),
        ("500", "unreachable: HTTP status 500"),
        ("503", "unreachable: HTTP status 503"),
        ("cut", "unreachable: ClientPayloadError"),
    ],
)
def test_a_file_is_missing_only_if_the_server_says_so(web, name, words):
    secret = f"http://user:password@{web.url[7:]}/{name}.mp4?token=secret"
    assert reason(secret) == words
    assert web.requests["GET", name] == (1 if words.startswith("missing") else 3)


def test_a_server_that_is_not_there_is_unreachable():
    assert kind_of(reason(f"http://127.0.0.1:{free_port()}/x.mp4")) == UNREACHABLE


@pytest.mark.parametrize(("name", "requests"), [("ok", 1), ("nolength", 1), ("twice", 2)])
def test_a_file_of_a_server_comes_whole_by_one_request(web, name, requests):
    assert fetched(f"{web.url}/{name}.mp4", MOST) == DATA
    assert web.requests["GET", name] == requests
    assert not web.requests["HEAD", name]


@pytest.mark.parametrize("name", ["ok", "nolength"])
def test_no_more_than_the_limit_is_read(web, name):
    assert reason(f"{web.url}/{name}.mp4", 5) == (
        f"too large: {len(DATA)} bytes: a file has at most 5"
    )


def test_files_of_this_machine_that_cannot_be_read_are_not_missing(tmp_path, monkeypatch):
    (tmp_path / "loop.mp4").symlink_to("loop.mp4")
    (tmp_path / "file.mp4").write_bytes(DATA)
    assert reason(str(tmp_path / "no.mp4")) == "missing: no such file"
    assert reason(str(tmp_path / "file.mp4" / "no.mp4")) == "missing: no such file"
    assert reason(str(tmp_path / "loop.mp4")) == f"unreadable: {os.strerror(errno.ELOOP)}"
    long = str(tmp_path / ("x" * 300))
    assert reason(long) == f"unreadable: {os.strerror(errno.ENAMETOOLONG)}"
    assert kind_of(reason(f"{tmp_path}/a\0b.mp4")) == UNREADABLE

    def fails(*_, **__):
        raise OSError(errno.EIO, "disk")

    monkeypatch.setattr("fsspec.implementations.local.LocalFileSystem.cat_file", fails)
    assert reason(str(tmp_path / "file.mp4")) == f"unreadable: {os.strerror(errno.EIO)}"


@pytest.mark.parametrize("url", ["ftp://host/x.mp4", "github://x/y.mp4", "no-such://x/y.mp4"])
def test_an_address_that_no_store_is_for_is_unreadable_in_words(url):
    assert kind_of(reason(url)) == UNREADABLE
    assert url.partition(":")[0] in reason(url)


def test_a_store_that_raises_what_it_likes_is_unreachable(monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("a token of secret has run out")

    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.info", fails)
    assert reason("memory://x/y.mp4") == "unreachable: RuntimeError"


def test_objects_of_s3_come_by_one_request_and_have_reasons():
    import boto3

    with StandIn() as store:
        store.put("a//b.mp4", DATA)
        store.requests.clear()
        assert fetched(f"{store.url}/a//b.mp4", MOST) == DATA
        assert dict(store.requests) == {"GET": 1}
        store.put("empty.mp4", b"")
        assert fetched(f"{store.url}/empty.mp4", MOST) == b""
        assert reason(f"{store.url}/a//b.mp4", 5).startswith(f"too large: {len(DATA)} bytes")
        assert reason(f"{store.url}/nowhere.mp4") == "missing: no such file"
        boto3.client("s3").put_object(
            Bucket=BUCKET, Key="cold.mp4", Body=DATA, StorageClass="GLACIER"
        )
        cold = "unreadable: archived, and not restored (InvalidObjectState)"
        assert reason(f"{store.url}/cold.mp4") == cold
