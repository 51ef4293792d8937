"""A line on stderr that shows that long work goes on; only on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

Tell = Callable[[str], None]


@contextmanager
def working(what: str) -> Iterator[Tell]:
    """A function to call with how far the work is."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status(f"{what} ...") as status:
        yield lambda far: status.update(f"{what}: {far}")
