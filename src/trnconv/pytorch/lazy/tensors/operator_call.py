"""An operator of torch that a patched model called, and that waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from trnconv.pytorch.lazy.base.bypass import passing
from trnconv.pytorch.lazy.base.memory import Counted
from trnconv.pytorch.lazy.base.pending_reads import alias_of
from trnconv.pytorch.lazy.base.traits import mapped, tensors_in
from trnconv.pytorch.lazy.tensors.cell import ViewOf
from trnconv.pytorch.lazy.tensors.tensor import LazyTensor


@dataclass(frozen=True)
class Operator:
    """An operator as it was called."""

    func: Any
    args: Any
    kwargs: Any

    def later(self) -> Callable[[], Any]:
        """What calls it, on the memory that its arguments have now.

        Lazy arguments are held as views: they are nobody's to look at.
        """
        func = self.func
        args, kwargs = mapped(torch.Tensor, _memory_of, (self.args, self.kwargs))

        def run() -> Any:
            operands, options = mapped(ViewOf, ViewOf.value, (args, kwargs))
            with passing(), torch.no_grad():
                return func(*operands, **options)

        return run

    def counted(self) -> tuple[Counted, ...]:
        """Tensors whose changes nobody else looks for."""
        given = tensors_in((self.args, self.kwargs))
        return tuple(Counted.of(tensor) for tensor in given if not isinstance(tensor, LazyTensor))


def _memory_of(tensor: torch.Tensor) -> ViewOf | torch.Tensor:
    return tensor.view_of if isinstance(tensor, LazyTensor) else alias_of(tensor)
