"""The process that decodes: it gets open files from its parent, and can open none itself.

Started by `decoder.py` as `python -m trnconv.corpus.videos.decoder_process SOCKET`. Every request
is a message with a `VideoRequest` and two files, a video and a place for its pixels; the answer is
one line. What a hostile video can do here is die, be slow, or want memory, and all three have a
limit.
"""

from __future__ import annotations

import json
import pkgutil
import signal
import socket
import sys
from importlib import import_module
from typing import Any

from trnconv.corpus.storage.document import read_json
from trnconv.corpus.videos.descriptors import forbid_more
from trnconv.corpus.videos.limits import MESSAGE_BYTES
from trnconv.corpus.videos.video_reader import BadVideoError, VideoRequest, read_windows
from trnconv.records import from_json, to_json


def main() -> None:
    """Answer requests until the parent hangs up."""
    _load_everything()
    with socket.socket(fileno=int(sys.argv[1])) as parent:
        forbid_more(2)
        while True:
            message, files, _, _ = socket.recv_fds(parent, MESSAGE_BYTES, 2)
            if not message:
                return
            parent.sendall(json.dumps(_answer(message, files)).encode() + b"\n")


def _load_everything() -> None:
    """PyAV imports parts of itself when it first meets them; later it could not."""
    import av
    import av.logging

    for module in pkgutil.walk_packages(av.__path__, "av."):
        if not module.name.endswith(("__main__", ".datasets")):
            import_module(module.name)
    av.logging.set_level(av.logging.PANIC)


def _answer(message: bytes, files: list[int]) -> dict[str, Any]:
    import resource

    request = from_json(VideoRequest, read_json(message))
    resource.setrlimit(resource.RLIMIT_AS, (request.limits.memory_bytes, resource.RLIM_INFINITY))
    signal.setitimer(signal.ITIMER_REAL, request.limits.decode_s)  # should the parent be gone
    source, target = files
    try:
        with open(source, "rb") as video, open(target, "wb", buffering=0) as out:  # noqa: PTH123 - descriptors
            windows, fps = read_windows(video, request, lambda pixels: _write(out, pixels.data))
    except BadVideoError as bad:
        return {"bad": str(bad)}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return {"fps": fps, "windows": [to_json(window) for window in windows]}


def _write(out: Any, pixels: memoryview) -> None:
    left = pixels.cast("B")
    while left:
        left = left[out.write(left) :]


if __name__ == "__main__":
    main()
