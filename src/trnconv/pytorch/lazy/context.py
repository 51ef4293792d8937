"""The surroundings of lazy tensors: who notes, and what may be rewritten."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from trnconv.ask.policy import ALWAYS_DIRECT, DEFAULT_POLICY, Policy
from trnconv.pytorch.lazy.noted import Notebook
from trnconv.pytorch.lazy.spreading import Spread
from trnconv.runtime.ranges import Ranges


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
    policy: Policy = DEFAULT_POLICY
    ranges: Ranges | None = None  # of the inputs of its layers, if they were sampled
    backend: str = "auto"
    refused: frozenset[str] = frozenset()  # modules whose own calls of torch's functions stay
    spread: Spread | None = None  # over several ranks

    def policy_for(self, module: str) -> Policy:
        """What a layer may give for speed.

        Bands of a video would have to cut it into the same tiles to have the same bits, so between
        ranks that are to agree nothing is given.
        """
        if self.reproducible and self.spread is not None:
            return ALWAYS_DIRECT
        if self.ranges is None:
            return self.policy
        return self.ranges.policy(module, self.policy) if module in self.ranges else ALWAYS_DIRECT

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
