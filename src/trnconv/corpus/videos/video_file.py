"""A video's file from its store, whole or with a reason; the store's faults are never the clip's.

A file is missing if the store says so, and in no other case. Everything else is tried again a few
times, and then called what it is: the store could not be asked, or cannot give this one file. Texts
of reasons hold codes, not what a store says: they are the same everywhere, and show no secrets.
"""

from __future__ import annotations

import os
import stat
from http import HTTPStatus
from time import sleep
from typing import Any

from trnconv.corpus.storage.addresses import is_http, is_local, store_of
from trnconv.corpus.videos.reasons import LARGE, MISSING, UNREACHABLE, UNREADABLE, kind_of
from trnconv.corpus.videos.video_reader import BadVideoError
from trnconv.errors import TrnconvError, UnsupportedError

WAITS_S = (1.0, 4.0)  # before the second try, and before the third and last
_ARCHIVED = "InvalidObjectState"  # S3's word for an object that has to be restored first


def fetched(url: str, most_bytes: int) -> bytes:
    """The whole file; a BadVideoError says why there is none, after a few tries."""
    data = _tried(url, most_bytes)
    for wait_s in WAITS_S:
        if isinstance(data, bytes) or kind_of(str(data)) not in (UNREACHABLE, UNREADABLE):
            break
        sleep(wait_s)
        data = _tried(url, most_bytes)
    if isinstance(data, BadVideoError):
        raise data
    return data


def _tried(url: str, most_bytes: int) -> bytes | BadVideoError:
    try:
        return _fetched_once(url, most_bytes)
    except BadVideoError as bad:
        return bad
    except (UnsupportedError, MemoryError):  # nothing that the store has said
        raise
    except TrnconvError as error:  # an address that no store here is for
        return BadVideoError(f"{UNREADABLE}: {error}")
    except Exception as error:  # noqa: BLE001 - stores raise what they like
        return BadVideoError(_reason(url, error))


def _fetched_once(url: str, most_bytes: int) -> bytes:
    fs, path = store_of(url)
    if is_local(fs):
        _require_size(_local_size(path), most_bytes)
        return bytes(fs.cat_file(path))
    if hasattr(fs, "call_s3"):
        return _object(fs, path, most_bytes)
    if is_http(path):
        from fsspec.asyn import sync

        return bytes(sync(fs.loop, _page, fs, path, most_bytes))
    _require_size(fs.info(path)["size"], most_bytes)
    return bytes(fs.cat_file(path))


def _require_size(size: int | None, most_bytes: int) -> None:
    if size is not None and size > most_bytes:
        raise BadVideoError(f"{LARGE}: {size} bytes: a file has at most {most_bytes}")


def _local_size(path: str) -> int:
    status = os.stat(path)  # noqa: PTH116 - names that are no Unicode
    if not stat.S_ISREG(status.st_mode):
        raise BadVideoError("not a file: a pipe, socket, device or folder")
    return status.st_size


def _object(fs: Any, path: str, most_bytes: int) -> bytes:
    """An object of S3 by one request; fsspec asks for its size first, once or twice."""
    from fsspec.asyn import sync

    bucket, key, version = fs.split_path(path)
    which = {"VersionId": version} if version else {}
    answer = fs.call_s3("get_object", Bucket=bucket, Key=key, **which)
    try:
        _require_size(answer["ContentLength"], most_bytes)
        return bytes(sync(fs.loop, answer["Body"].read))
    finally:
        answer["Body"].close()


async def _page(fs: Any, url: str, most_bytes: int) -> bytes:
    """A file of an HTTP server by one request, of which no more is read than the limit.

    fsspec would ask for its size first, and calls every failure of that a missing file.
    """
    session = await fs.set_session()
    async with session.get(fs.encode_url(url)) as answer:  # for five minutes, as aiohttp has it
        answer.raise_for_status()
        _require_size(answer.content_length, most_bytes)
        data = bytearray()
        async for part in answer.content.iter_chunked(1 << 20):
            data += part
            _require_size(len(data), most_bytes)
    return bytes(data)


def _reason(url: str, error: Exception) -> str:
    """Why a try has failed: its kind and code."""
    status = getattr(error, "status", None)
    code = getattr(error.__cause__, "response", {}).get("Error", {}).get("Code", "")
    if isinstance(error, FileNotFoundError | NotADirectoryError) or status in (
        HTTPStatus.NOT_FOUND,
        HTTPStatus.GONE,
    ):
        return f"{MISSING}: no such file"
    if isinstance(error, ValueError):  # a name with a zero byte, an address that is none
        return f"{UNREADABLE}: no address of a file"
    if code == _ARCHIVED:
        return f"{UNREADABLE}: archived, and not restored ({code})"
    said = code or (f"HTTP status {status}" if status else _said(error))
    local = is_local(store_of(url)[0])
    return f"{UNREADABLE if local else UNREACHABLE}: {said}"


def _said(error: Exception) -> str:
    """An error of this machine in its words, any other by its name."""
    number = getattr(error, "errno", None)
    return os.strerror(number) if isinstance(number, int) else type(error).__name__
