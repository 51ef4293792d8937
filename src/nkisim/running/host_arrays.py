"""The border to the caller: arrays of NumPy, torch, JAX, and bare shapes in, the same kinds out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nkisim.errors import NkiValidationError
from nkisim.numerics import dtypes

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Spec:
    """A tensor without data, for shape-only runs: `Spec((128, 512), "bfloat16")`."""

    shape: tuple[int, ...]
    dtype: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "dtype", dtypes.canonical(self.dtype))


def is_torch(value: Any) -> bool:
    """Whether a value is a torch tensor, without importing torch."""
    kind = type(value)
    return kind.__module__.split(".")[0] == "torch" and hasattr(value, "data_ptr")


def is_foreign(value: Any) -> bool:
    """Whether a value is an array of another library: one that NumPy can read, such as JAX's."""
    if isinstance(value, (np.ndarray, np.generic)) or is_torch(value):
        return False
    kind = type(value)
    return all(hasattr(kind, name) for name in ("__array__", "__array_namespace__", "shape"))


def is_array(value: Any) -> bool:
    """Whether a kernel argument becomes an HBM tensor."""
    return isinstance(value, (np.ndarray, Spec)) or is_torch(value) or is_foreign(value)


def spec_of(value: Any) -> Spec:
    """Shape and dtype of an array argument."""
    if isinstance(value, Spec):
        return value
    if is_torch(value):
        return Spec(tuple(value.shape), str(value.dtype).removeprefix("torch."))
    return Spec(value.shape, dtypes.canonical(value.dtype))


def to_numpy(value: Any) -> Array:
    """An array argument as a NumPy array; shares memory with torch where the dtypes allow."""
    if not is_torch(value):
        return np.asarray(value)
    tensor = value.detach()
    name = str(tensor.dtype).removeprefix("torch.")
    if name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        import torch  # noqa: PLC0415 (only ever reached with a torch tensor in hand)

        width = 8 * dtypes.itemsize_bytes(name)
        bits = tensor.contiguous().view(getattr(torch, f"uint{width}" if width == 8 else "int16"))
        native = dtypes.to_host(np.zeros(1, dtypes.held_dtype(name)), name).dtype
        return np.asarray(bits.numpy()).view(native)
    return np.asarray(tensor.numpy())


def like(array: Array, example: Any) -> Any:
    """A NumPy result in the caller's kind: a torch tensor or JAX's array if `example` is one."""
    if is_foreign(example):
        return example.__array_namespace__().asarray(array)
    if not is_torch(example):
        return array
    import torch  # noqa: PLC0415 (only ever reached with a torch tensor in hand)

    name = dtypes.canonical(array.dtype)
    if name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        bits = np.ascontiguousarray(array).view(np.int16 if name == "bfloat16" else np.uint8)
        return torch.from_numpy(bits).view(getattr(torch, name))
    return torch.from_numpy(np.ascontiguousarray(array))


def write_back(value: Any, array: Array) -> None:
    """Copy a mutated argument back into the caller's array; JAX's cannot be written."""
    if is_torch(value):
        value.copy_(like(array.reshape(tuple(value.shape)), value))
    elif is_foreign(value):
        _write_foreign(value, array)
    else:
        value[...] = array.reshape(value.shape)


def _write_foreign(value: Any, array: Array) -> None:
    try:
        value[...] = like(array.reshape(value.shape), value)
    except TypeError as error:
        raise NkiValidationError(
            f"the kernel writes to an argument that is a {type(value).__name__}",
            limit="arrays of this library cannot be written",
            remedy="return the result, or pass a NumPy array",
        ) from error
