"""A job: what is asked, and the folder that it has to itself."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from trnconv.corpus.buckets import Buckets
from trnconv.corpus.completion import all_totals
from trnconv.corpus.document import read_json
from trnconv.corpus.encoding import EncoderSettings
from trnconv.corpus.limits import Limits
from trnconv.corpus.manifest import MANIFEST, overview
from trnconv.corpus.plan import CorpusPlan
from trnconv.corpus.store import Folder
from trnconv.corpus.video_reader import VideoRequest
from trnconv.errors import TrnconvError

JOB, WEIGHTS = "job.json", "weights.json"


@dataclass(frozen=True, kw_only=True)
class Job:
    """Where latents go and all they depend on. Small and picklable: workers get it as it is."""

    out: str  # an address fsspec knows, or a local folder
    encoder: EncoderSettings
    buckets: Buckets
    fps: float | None = None  # None: every frame of the file
    windows: int = 1  # stretches of a file that are encoded, one after the other
    limits: Limits = field(default_factory=Limits)
    readers: int = 1  # clips a worker decodes ahead, each in a process

    def __post_init__(self) -> None:
        for name in ("windows", "readers"):
            if getattr(self, name) < 1:
                raise TrnconvError(f"{name} of {getattr(self, name)}: at least 1.")

    @property
    def folder(self) -> Folder:
        """Where it is done."""
        return Folder(self.out)

    @property
    def reading(self) -> VideoRequest:
        """What is asked of a video."""
        return VideoRequest(self.buckets, self.fps, self.windows, self.limits)

    def settings(self) -> dict[str, Any]:
        """What the latents depend on, as JSON has it."""
        stated = {
            "encoder": asdict(self.encoder),
            "precision": asdict(self.encoder.precision),
            "buckets": asdict(self.buckets),
            "fps": self.fps,
            "windows": self.windows,
            "limits": asdict(self.limits),
        }
        read: dict[str, Any] = json.loads(json.dumps(stated))
        return read

    def claim(self) -> None:
        """Take the folder for this job; a TrnconvError if another job has it."""
        if not self.folder.create(JOB, _document(self.settings())):
            self._require_same(JOB, self.settings())

    def claim_weights(self, weights_sha256: str) -> None:
        """Encode with these weights and no others, whatever a path stands for tomorrow."""
        stated = {"weights_sha256": weights_sha256}
        if not self.folder.create(WEIGHTS, _document(stated)):
            self._require_same(WEIGHTS, stated)

    def write_manifest(self, plan: CorpusPlan) -> dict[str, Any] | None:
        """The manifest, written when every segment is closed; None before."""
        totals = all_totals(plan)
        if totals is None:
            return None
        document = overview(self.settings(), self.encoder.tensors, totals)
        self.folder.write(MANIFEST, _document(document))
        return document

    def _require_same(self, name: str, now: dict[str, Any]) -> None:
        before = read_json(self.folder.read(name))
        if not isinstance(before, dict):
            raise TrnconvError(
                f"{self.out}/{name} is not what this version writes. Encode into another folder."
            )
        was = _leaves(before)
        different = [
            f"{leaf} was {was.get(leaf)!r} and is {value!r}"
            for leaf, value in _leaves(now).items()
            if was.get(leaf) != value
        ]
        if different:
            raise TrnconvError(
                f"{self.out} holds latents of another job: {'; '.join(different)}. Ask for the"
                " same, or encode into another folder."
            )


def _document(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def _leaves(value: Any, name: str = "") -> dict[str, Any]:
    """Values of nested objects by their path."""
    found: dict[str, Any] = {}
    todo = [(name, value)]
    while todo:
        path, inner = todo.pop()
        if isinstance(inner, dict):
            todo += [(f"{path}.{key}" if path else key, leaf) for key, leaf in inner.items()]
        else:
            found[path] = inner
    return dict(sorted(found.items()))
