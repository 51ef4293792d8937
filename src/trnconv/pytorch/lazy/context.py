"""The surroundings of lazy tensors: who notes, and what may be rewritten."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from trnconv.pytorch.lazy.noted import Notebook
from trnconv.pytorch.lazy.spreading import Spread


@dataclass(frozen=True)
class Rewrites:
    """What a patched model may do differently, each exact in real arithmetic."""

    splice: bool = True  # padding, cache and copies of frames are read where they lie
    fold_upsample: bool = True  # nearest upsampling becomes phases of the convolution
    before_upsample: bool = True  # pointwise convolutions run before upsampling
    fuse_ends: bool = True  # residual and activation happen on the way out of PSUM


ALL_REWRITES = Rewrites()
NO_REWRITES = Rewrites(splice=False, fold_upsample=False, before_upsample=False, fuse_ends=False)


@dataclass
class Surroundings:
    """One patched model at work."""

    book: Notebook
    dispatch: Callable[[Surroundings, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
    rewrites: Rewrites = ALL_REWRITES
    reproducible: bool = False
    backend: str = "auto"
    refused: frozenset[str] = frozenset()  # modules whose own calls of torch's functions stay
    spread: Spread | None = None  # over several ranks

    def call(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A function of torch with a lazy tensor among its arguments."""
        return self.dispatch(self, func, args, kwargs)


class _Depth(threading.local):
    value: int = 0


_depth = _Depth()


def active() -> bool:
    """Whether a patched model is running in this thread."""
    return _depth.value > 0


@contextmanager
def running() -> Iterator[None]:
    """While a patched model runs."""
    _depth.value += 1
    try:
        yield
    finally:
        _depth.value -= 1
