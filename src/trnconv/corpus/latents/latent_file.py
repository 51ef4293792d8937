"""Tensors of a file of latents: mapped where it is local, by range where it is not."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from trnconv.corpus.storage.document import read_json
from trnconv.corpus.storage.needs import needed_for
from trnconv.corpus.storage.store import Folder
from trnconv.errors import TrnconvError

if TYPE_CHECKING:
    import torch

_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}  # safetensors' names
_LENGTH_BYTES = 8
_MOST_HEADER_BYTES = 100_000_000  # safetensors' own limit
_GUESS_BYTES = 1 << 16  # of length and header together, for one request
_REQUESTS = 16  # at a time: a store answers each in tens of milliseconds

_Span = tuple[int, int, str]  # from, to, and the name of a tensor


def read_tensors(folder: Folder, file: str, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """Some tensors of a file; a TrnconvError if it has them not, or is no such file."""
    with needed_for("reading latents"):
        from safetensors import SafetensorError, safe_open

    path = folder.local(file)
    if path is None:
        return _fetched(folder, file, names)
    try:
        with safe_open(path, "pt") as opened:
            return {name: opened.get_tensor(name) for name in names}
    except (SafetensorError, OSError) as error:
        raise _broken(folder, file, str(error)) from error


def check_latents(
    folder: Folder, row: Mapping[str, Any], latents: Mapping[str, torch.Tensor]
) -> None:
    """A TrnconvError if latents are not those of which the manifest has the SHA-256."""
    from trnconv.corpus.latents.encoding import sha256_of

    digest = sha256_of(dict(latents))
    if digest != row["sha256"]:
        raise TrnconvError(
            f"{folder.url}/{row['file']}: the latents of {row['key']} have SHA-256"
            f" {digest[:12]}..., and {row['sha256'][:12]}... was stored when they were encoded: the"
            " file has changed since. Remove it and run the encoding again: it makes the shard"
            " anew."
        )


def _fetched(folder: Folder, file: str, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """Tensors by ranges, all at the same time; those that lie side by side are one range."""
    start, header = _header(folder, file)
    try:
        spans = sorted((*header[name]["data_offsets"], name) for name in names)
        runs = _runs(spans)
        with ThreadPoolExecutor(min(_REQUESTS, len(runs))) as threads:
            data = threads.map(
                lambda run: folder.read_range(file, start + run[0][0], start + run[-1][1]), runs
            )
            return {
                name: _tensor(
                    header[name], memoryview(part or b"")[low - run[0][0] : high - run[0][0]]
                )
                for run, part in zip(runs, data, strict=True)
                for low, high, name in run
            }
    except (TypeError, KeyError, ValueError, RuntimeError) as error:
        raise _broken(folder, file, f"{type(error).__name__}: {error}") from error


def _runs(spans: Sequence[_Span]) -> list[list[_Span]]:
    """Spans in order, those together that have nothing between them."""
    runs: list[list[_Span]] = []
    for span in spans:
        if runs and runs[-1][-1][1] == span[0]:
            runs[-1].append(span)
        else:
            runs.append([span])
    return runs


def _tensor(header: Mapping[str, Any], data: memoryview) -> torch.Tensor:
    import torch

    dtype = getattr(torch, _DTYPES[header["dtype"]])
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(header["shape"])


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
