"""Plans of registered models, kept on disk: asked for again, one is read and not worked out.

Kept is what follows from this package alone. Not kept are plans with tuned plans or measured
constants, which are files of the user, and plans of what the installed diffusers does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from trnconv.cli.model_options import plan_cache

TUNED_VARIABLE = "TRNCONV_TUNED"
Document = dict[str, Any]


@dataclass(frozen=True)
class ModelRequest:
    """A plan of a model as the options ask for it. None: as the command takes it by default."""

    model: str
    size: str
    phase: str
    machine: str
    accuracy: str
    cores: int | None
    batch: int | None
    dtype: str | None


def kept_or_made(
    request: ModelRequest, make: Callable[[], tuple[Document, bool]], *, unused: bool
) -> Document:
    """The plan on disk; else what `make` gives, kept if that says it follows from this package."""
    from nkisim.measured_machine import is_file

    apart = is_file(request.machine) or TUNED_VARIABLE in os.environ
    with plan_cache(unused=unused or apart) as cache:
        if cache is None:
            return make()[0]
        stored: Document | None = cache.get(asdict(request))
        if stored is None:
            stored, of_package = make()
            if of_package:
                cache.put(asdict(request), stored)
        return stored
