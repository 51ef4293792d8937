"""GivenMemory: `tensor.data = lazy` while a patched model runs gives the tensor real memory.

torch hands a tensor another's memory without asking the dispatcher, and the memory of a lazy tensor
is empty: whoever then looks at the tensor without the dispatcher (f-strings, `deepcopy`, `tolist`)
would read nothing, or crash.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from trnconv.pytorch.lazy.tensor import LazyTensor

_SET_DATA = torch.Tensor.data.__set__  # type: ignore[attr-defined]


class GivenMemory(TorchFunctionMode):
    """On while a patched model runs in this thread."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """As it is, but for that one."""
        del types
        if func == _SET_DATA and isinstance(args[1], LazyTensor):
            tensor, lazy = args
            if not isinstance(tensor, LazyTensor):
                args = (tensor, lazy.solid().detach())
        return func(*args, **(kwargs or {}))
