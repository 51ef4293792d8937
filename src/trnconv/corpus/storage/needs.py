"""Packages that only a corpus needs: imported where they are used, and missed in words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trnconv.errors import UnsupportedError


@contextmanager
def needed_for(what: str, extra: str = "corpus") -> Iterator[None]:
    """Around an import: if the package is missing, an UnsupportedError says what to install."""
    try:
        yield
    except ImportError as missing:
        raise UnsupportedError(
            f"{what} needs the package {missing.name}, which cannot be imported here. Run"
            f" `pip install 'trnconv[{extra}]'`."
        ) from missing
