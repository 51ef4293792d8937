"""From a kernel function to what is called on a device: jitted, on its cores, with workarounds."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Any

from trnconv.host.workarounds import (
    NO_COMPILE_CACHE,
    NO_LEGALISATION,
    NO_ROTATION,
    RECIPE_IN_CLOSURE,
)

Kernel = Callable[..., Any]
_KEY_BYTES = 6
_CACHE_VARIABLE = "NKI_DISABLE_COMPILE_CACHE"


def built(jit: Callable[..., Any], kernel: Kernel, cores: int, workarounds: frozenset[str]) -> Any:
    """A kernel as `nki.jit` makes it, for so many cores.

    The pass for tensors that are written more than once is asked for where there is an option for
    it: NKI 0.7 has one, and it is off by default. All kernels write tensors so.
    """
    if NO_COMPILE_CACHE in workarounds:
        os.environ[_CACHE_VARIABLE] = "1"
    made = legalised(jit(kernel), workarounds)
    if NO_ROTATION in workarounds:
        made = _asked(made, "disable_address_rotation")
    return made if cores == 1 else made[cores]


def legalised(made: Any, workarounds: frozenset[str]) -> Any:
    """A kernel object, with the pass for tensors that are written again, unless it is off."""
    return made if NO_LEGALISATION in workarounds else _asked(made, "enable_non_ssa_legalization")


def _asked(made: Any, method: str) -> Any:
    """The kernel with an option, where this toolchain has it."""
    found = getattr(made, method, None)
    return made if found is None else found()


def with_recipe(
    kernel: Kernel, recipe: Any, workarounds: frozenset[str]
) -> tuple[Kernel, tuple[Any, ...]]:
    """A kernel and what follows its tensors: the recipe, or nothing if a closure has it."""
    if RECIPE_IN_CLOSURE not in workarounds:
        return kernel, (recipe,)

    def specialised(*tensors: Any) -> Any:
        return kernel(*tensors, recipe)

    specialised.__name__ = f"{kernel.__name__}_{short_key(recipe)}"
    return specialised, ()


def short_key(what: Any) -> str:
    """What stands for it in a name: a digest of its repr, which for a recipe is one already."""
    return hashlib.blake2b(repr(what).encode(), digest_size=_KEY_BYTES).hexdigest()
