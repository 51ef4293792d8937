"""The module that computes for a backend."""

from __future__ import annotations

from typing import Any

import torch

from trnconv.pytorch import aten, neuron, simulated
from trnconv.pytorch.backends import Backend, choose_backend

BACKENDS: dict[Backend, Any] = {
    Backend.nkisim: simulated,
    Backend.torch: aten,
    Backend.neuron: neuron,
}


def computing(tensor: torch.Tensor, backend: str) -> Any:
    """The module, decided when an op runs: so it is under torch.compile too."""
    return BACKENDS[choose_backend(tensor, backend).backend]
