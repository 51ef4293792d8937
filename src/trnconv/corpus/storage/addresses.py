"""Addresses: which store one is of, and the path in it. Nothing inside of a name is obeyed.

A name may hold what fsspec would read as another address (`a::http://host/b.mp4`). Only the letters
before the first `://` say which store is meant; what has none is a path of this machine.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from trnconv.corpus.storage.needs import needed_for
from trnconv.errors import TrnconvError

_PROTOCOL = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)


def store_of(url: str) -> tuple[Any, str]:
    """The file system of an address, and the path in it."""
    with needed_for("reading and writing files"):
        import fsspec

    named = _PROTOCOL.match(url)
    if named is None:
        return fsspec.filesystem("file"), str(Path(url).absolute())
    protocol = named[1].lower()
    if protocol not in _protocols():
        raise TrnconvError(
            f"{url!r}: no store is called {protocol!r}. Write a path of this machine, or an"
            " address with s3://, gs:// or another protocol that fsspec knows."
        )
    with needed_for(f"addresses with {protocol}://"):
        if wanted := _wanted_arguments(fsspec.get_filesystem_class(protocol)):
            raise TrnconvError(
                f"a store with {protocol}:// cannot be opened by an address alone: it wants"
                f" {', '.join(wanted)}. Copy the files to this machine or to an object store, or"
                " mount it."
            )
        fs = fsspec.filesystem(protocol, use_listings_cache=False)
    return fs, str(fs._strip_protocol(url))  # noqa: SLF001 - fsspec's own way, without its chains


def is_local(fs: Any) -> bool:
    """Whether files of this file system have a path of this machine."""
    return "file" in ((fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol)


def is_http(url: str) -> bool:
    """Whether an address is a server's, who lists nothing."""
    return url.lower().startswith(("http://", "https://"))


def absolute(url: str) -> str:
    """An address that means the same in every folder."""
    return url if _PROTOCOL.match(url) else str(Path(url).absolute())


def readable(text: str) -> str:
    """A name as text of Unicode: bytes that are none are written by their number."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


@cache
def _wanted_arguments(kind: type[Any]) -> tuple[str, ...]:
    """What a store's class cannot be made without."""
    named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    parameters = signature(kind.__init__).parameters.values()
    return tuple(
        parameter.name
        for parameter in parameters
        if parameter.kind in named
        and parameter.default is Parameter.empty
        and parameter.name != "self"
    )


@lru_cache(maxsize=1)
def _protocols() -> frozenset[str]:
    import fsspec

    chained = {"simplecache", "filecache", "blockcache", "cached", "dir", "reference", "zip", "tar"}
    return frozenset(fsspec.available_protocols()) - chained
