"""nl.device_print."""

from __future__ import annotations

import numpy as np

from nkisim.errors import refuse
from nkisim.language.tiles import require_tensor
from nkisim.memory.layout import MemoryRegion
from nkisim.numerics import dtypes
from nkisim.running.session import current
from nkisim.tensors.indirection import read_held
from nkisim.tensors.tensor import NkiTensor


def device_print(print_prefix: str, tensor: NkiTensor) -> None:
    """Print the prefix and the tensor's values now; a shape-only run prints dtype and shape."""
    tensor = require_tensor("nl.device_print", "tensor", tensor)
    if not isinstance(print_prefix, str):
        refuse(
            "nl.device_print",
            f"print_prefix={print_prefix!r}",
            "a string known at compile time",
            "pass a string",
        )
    if tensor.buffer is MemoryRegion.psum:
        refuse(
            "nl.device_print",
            f"tensor {tensor.name!r} lives in psum",
            "tensors in SBUF or HBM can be printed",
            "copy it to SBUF with nl.copy",
        )
    print(print_prefix, _text(tensor))  # noqa: T201 (printing is what it is for)


def _text(tensor: NkiTensor) -> str:
    if not current().values:
        return f"{tensor.dtype} {tensor.shape}"
    return str(dtypes.to_host(np.array(read_held(tensor)), tensor.dtype))
