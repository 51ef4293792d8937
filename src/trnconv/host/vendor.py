"""The vendor's packages that are importable here, as modules or None."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from trnconv import _nki

VENDORS_NKI = "nki "  # what `_nki.SOURCE` begins with where the vendor's toolchain is


@dataclass(frozen=True)
class Vendor:
    """Modules of the vendor; None where a package is not there."""

    nki: Any = None
    torch_neuronx: Any = None
    lite: Any = None  # libtorch_neuronx_lite
    torch_xla: Any = None
    nki_source: str = ""


def find_vendor() -> Vendor:
    """What can be imported; nkisim under NKI's name is not the vendor's."""
    real = _nki.SOURCE.startswith(VENDORS_NKI)
    return Vendor(
        nki=importlib.import_module("nki") if real else None,
        torch_neuronx=_module("torch_neuronx"),
        lite=_module("libtorch_neuronx_lite"),
        torch_xla=_module("torch_xla"),
        nki_source=_nki.SOURCE if real else "",
    )


def _module(name: str) -> Any:
    return importlib.import_module(name) if find_spec(name) is not None else None
