"""Results that are not computed yet: of convolutions, norms and masks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch

from trnconv.pytorch.lazy.base import pending_reads
from trnconv.pytorch.lazy.base.memory import Counted, storage_of

Tensor = torch.Tensor


class Pending(ABC):
    """A tensor [N, C, T, H, W], computed when somebody looks at it.

    It holds its operands until then and its result from then on, never both.
    """

    macs = 0  # multiply-adds: of two that a sum could go into, the larger takes it

    @property
    def largest(self) -> float | None:
        """The largest magnitude that the result can have for any input; None if nobody knows."""
        return None

    def __init__(self, shape: torch.Size, dtype: torch.dtype, device: torch.device) -> None:
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self._result: Tensor | None = None
        pending_reads.add(self)

    @abstractmethod
    def operand_storages(self) -> frozenset[int]:
        """Memory that it reads when it runs."""

    @abstractmethod
    def run(self) -> Tensor:
        """Compute it, and let the operands go. Called once."""

    @property
    def has_run(self) -> bool:
        """Whether there is a result, so that nothing can be fused any more."""
        return self._result is not None

    def reads(self) -> frozenset[int]:
        """Storages that must not change before it has run."""
        return frozenset() if self.has_run else self.operand_storages()

    def lies_in(self) -> frozenset[int]:
        """Storages that a reader of the result depends on: its operands', or its own."""
        if self._result is not None:
            return frozenset([storage_of(self._result)])
        return self.operand_storages()

    def settle(self) -> None:
        """Read the operands now."""
        self.result()

    def result(self) -> Tensor:
        """Run it, the first time."""
        if self._result is None:
            self.known(self.run())
        assert self._result is not None
        return self._result

    def known(self, result: Tensor) -> None:
        """It was computed, by itself or with something else."""
        self._result = result
        pending_reads.remove(self)

    def reads_of(self, base: Pending) -> bool:
        """Whether it reads the result of another."""
        del base
        return False

    def plus(self, residual: Tensor, counted: tuple[Counted, ...]) -> Pending | None:
        """The same with a tensor added, in one kernel; None if it cannot be fused."""
        del residual, counted
        return None

    def activated(self, activation: str) -> Pending | None:
        """The same with an activation, in one kernel; None if it cannot be fused."""
        del activation
        return None

    def rewritten(self, change: Any) -> Pending | None:
        """The same result by a changed convolution; None if it cannot be, or is of none."""
        del change
        return None
