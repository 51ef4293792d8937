"""Tensors of a file of latents: mapped where it is local, by range or whole where it is not."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from trnconv.corpus.document import read_json
from trnconv.corpus.needs import needed_for
from trnconv.corpus.store import Folder
from trnconv.errors import TrnconvError

if TYPE_CHECKING:
    import torch

_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}  # safetensors' names
_LENGTH_BYTES = 8
_MOST_HEADER_BYTES = 100_000_000  # safetensors' own limit
_GUESS_BYTES = 1 << 16  # of length and header together, for one request


def read_tensors(folder: Folder, file: str, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """Some tensors of a file; a TrnconvError if it has them not, or is no such file."""
    with needed_for("reading latents"):
        from safetensors import SafetensorError, safe_open

    path = folder.local(file)
    if path is None:
        return {name: _ranged(folder, file, name) for name in names}
    try:
        with safe_open(path, "pt") as opened:
            return {name: opened.get_tensor(name) for name in names}
    except (SafetensorError, OSError) as error:
        raise _broken(folder, file, str(error)) from error


def read_all(folder: Folder, file: str) -> Mapping[str, torch.Tensor]:
    """All tensors of a file, in one request."""
    with needed_for("reading latents"):
        from safetensors import SafetensorError
        from safetensors.torch import load, load_file

    path = folder.local(file)
    try:
        found: dict[str, Any] = load_file(path) if path else load(folder.read(file) or b"")
    except (SafetensorError, OSError) as error:
        raise _broken(folder, file, str(error)) from error
    return found


def _ranged(folder: Folder, file: str, name: str) -> torch.Tensor:
    import torch

    start, header = _header(folder, file)
    try:
        said = header[name]
        low, high = said["data_offsets"]
        dtype = getattr(torch, _DTYPES[said["dtype"]])
        data = bytearray(folder.read_range(file, start + low, start + high) or b"")
        return torch.frombuffer(data, dtype=dtype).reshape(said["shape"])
    except (TypeError, KeyError, ValueError, RuntimeError) as error:
        raise _broken(folder, file, f"tensor {name}: {error}") from error


@lru_cache(maxsize=256)
def _header(folder: Folder, file: str) -> tuple[int, dict[str, Any]]:
    """Where the data of a file begins, and what it says of its tensors."""
    first = folder.read_range(file, 0, _GUESS_BYTES) or b""
    if len(first) < _LENGTH_BYTES:
        raise _broken(folder, file, "it is gone, or empty")
    (length,) = struct.unpack("<Q", first[:_LENGTH_BYTES])
    if length > _MOST_HEADER_BYTES:
        raise _broken(folder, file, f"a header of {length} bytes")
    end = _LENGTH_BYTES + length
    text = first[_LENGTH_BYTES:end]
    if len(text) < length:
        text = folder.read_range(file, _LENGTH_BYTES, end) or b""
    header = read_json(text)
    if not isinstance(header, dict):
        raise _broken(folder, file, f"a header that is no JSON: {json.dumps(str(text[:20]))}")
    return end, header


def _broken(folder: Folder, file: str, why: str) -> TrnconvError:
    return TrnconvError(
        f"{folder.url}/{file}: {why}. Run the encoding again: it finds what was lost."
    )
