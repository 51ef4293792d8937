"""Random numbers. The device's random stream is not documented, so none of these is modelled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nkisim import enums
from nkisim.refusal import refused

if TYPE_CHECKING:
    from nkisim.tensors.tensor import NkiTensor

_REASON = "the device's random stream is not documented, so it cannot be reproduced"
_REMEDY = "pass random numbers, or the mask made of them, as a kernel argument"


@refused("nisa.rng", _REASON, _REMEDY)
def rng(
    dst: NkiTensor, engine: enums.engine = enums.engine.vector, name: str | None = None
) -> None:
    """dst = random bits."""


@refused("nisa.dropout", _REASON, _REMEDY)
def dropout(
    dst: NkiTensor, data: NkiTensor, prob: float | NkiTensor, name: str | None = None
) -> None:
    """dst = data with elements set to zero, each with probability prob."""


@refused("nisa.set_rng_seed", _REASON, _REMEDY)
def set_rng_seed(src_seeds: NkiTensor, name: str | None = None) -> None:
    """Seed the generator of the Vector engine."""


@refused("nisa.rand_set_state", _REASON, _REMEDY)
def rand_set_state(
    src_seeds: NkiTensor, engine: enums.engine = enums.engine.gpsimd, name: str | None = None
) -> None:
    """Set the generator's state, one per partition."""


@refused("nisa.rand_get_state", _REASON, _REMEDY)
def rand_get_state(
    dst: NkiTensor, engine: enums.engine = enums.engine.gpsimd, name: str | None = None
) -> None:
    """dst = the generator's state, one per partition."""


@refused("nisa.rand2", _REASON, _REMEDY)
def rand2(
    dst: NkiTensor, min: float | NkiTensor, max: float | NkiTensor, name: str | None = None
) -> None:
    """dst = numbers spread evenly between min and max."""
