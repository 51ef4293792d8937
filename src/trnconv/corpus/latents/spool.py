"""Latents of a shard on their way into files: on disk, so that memory holds one clip's."""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

from trnconv.corpus.shards.records import LatentFile
from trnconv.corpus.shards.shard import Shard
from trnconv.corpus.storage.needs import needed_for
from trnconv.corpus.storage.process import Process, this_process
from trnconv.corpus.storage.store import Folder

if TYPE_CHECKING:
    import torch

_READ_BYTES = 1 << 20
_PREFIX = "trnconv-spool."


@dataclass
class Spool:
    """A folder of raw tensors, by bucket; a file of latents for each bucket in the end."""

    out: Folder
    shard: Shard
    place: Path = field(init=False)
    tensors: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict)  # mapped from disk

    def __post_init__(self) -> None:
        near = self.out.spool() or Path(tempfile.gettempdir())
        near.mkdir(parents=True, exist_ok=True)
        _sweep(near)
        prefix = f"{_PREFIX}{this_process()}.{self.shard.name}."
        self.place = Path(tempfile.mkdtemp(prefix=prefix, dir=near))

    def add(self, bucket: str, name: str, tensor: torch.Tensor) -> None:
        """Keep a tensor on disk."""
        import torch

        path = self.place / name
        with path.open("wb") as file:
            file.write(bytes_of(tensor))
        if tensor.numel():
            held = torch.from_file(
                str(path), shared=False, size=tensor.numel(), dtype=tensor.dtype
            ).reshape(tensor.shape)
        else:
            held = tensor
        self.tensors.setdefault(bucket, {})[name] = held

    def put(self) -> dict[str, LatentFile]:
        """Put a file of each bucket in its place, under a name of its content."""
        with needed_for("writing latents"):
            from safetensors import SafetensorError
            from safetensors.torch import save_file

        made = {}
        for bucket, tensors in sorted(self.tensors.items()):
            path = self.place / f"{bucket}.safetensors"
            try:
                save_file(tensors, str(path))
            except SafetensorError as error:
                raise OSError(str(error)) from error
            digest, size = _sha256_of(path), path.stat().st_size
            name = f"shards/{self.shard.key}-{bucket}-{digest[:12]}.safetensors"
            self._place(name, path, size)
            made[bucket] = LatentFile(name, bucket, size, digest)
        return made

    def close(self) -> None:
        """Remove what is left here."""
        self.tensors = {}
        rmtree(self.place, ignore_errors=True)

    def _place(self, name: str, path: Path, size: int) -> None:
        """Whoever has put it there has put the same, unless something has cut it since."""
        if self.out.put(name, path):
            return
        folder, _, file = name.rpartition("/")
        if self.out.sizes(folder).get(file) != size:
            self.out.remove(name)
            self.out.put(name, path)


def _sweep(near: Path) -> None:
    """Remove what ended processes of this user had not put in place yet."""
    for left in near.glob(f"{_PREFIX}*"):
        owner = Process.parse(left.name.removeprefix(_PREFIX).partition(".")[0])
        with suppress(FileNotFoundError):  # others sweep, too
            is_ours = left.lstat().st_uid == os.getuid()
            if is_ours and owner is not None and owner.is_gone():
                rmtree(left, ignore_errors=True)


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """The bytes of a tensor's values."""
    import torch

    data: memoryview = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data
    return data


def _sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(_READ_BYTES):
            digest.update(part)
    return digest.hexdigest()
