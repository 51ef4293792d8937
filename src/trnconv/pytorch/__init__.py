"""PyTorch front end: torch's own functions and modules, on trnconv's kernels."""

from trnconv.pytorch import functional, nn
from trnconv.pytorch.backends import Backend, backend, choose_backend

__all__ = ["Backend", "backend", "choose_backend", "functional", "nn"]
