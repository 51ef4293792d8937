"""A job: what is asked, and the folder that it has to itself."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from socket import gethostname
from typing import Any

from trnconv.corpus.latents.encoding import EncoderSettings
from trnconv.corpus.shards.completion import all_totals
from trnconv.corpus.shards.manifest import MANIFEST, overview
from trnconv.corpus.shards.plan import CorpusPlan
from trnconv.corpus.storage.document import read_json
from trnconv.corpus.storage.store import Folder
from trnconv.corpus.storage.versions import Versions, require_names, versions_here
from trnconv.corpus.videos.buckets import Buckets
from trnconv.corpus.videos.limits import Limits
from trnconv.corpus.videos.video_reader import VideoRequest
from trnconv.errors import TrnconvError
from trnconv.records import from_json

JOB, WEIGHTS = "job.json", "weights.json"
LIMITS, VERSIONS = "limits", "versions"  # folders: a document for every change


@dataclass(frozen=True, kw_only=True)
class RunTerms:
    """What is said of one run, and is no part of the job."""

    most_unread: float = 0.5  # share of the last clips that may not be read before a run stops
    retry: tuple[str, ...] = ()  # how reasons begin that are tried again; "all" for every one
    verify: bool = False  # read all that was written and compare, before anything is encoded
    accept: tuple[str, ...] = ()  # names of versions that may be others than before
    versions: Versions | None = None  # of who started the run; workers have the same

    def __post_init__(self) -> None:
        require_names(self.accept)
        if not 0 < self.most_unread <= 1:
            raise TrnconvError(f"most_unread of {self.most_unread}: a share, above 0, at most 1.")


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
    terms: RunTerms = field(default_factory=RunTerms)

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
        }
        read: dict[str, Any] = json.loads(json.dumps(stated))
        return read

    def require_versions(self) -> Versions:
        """Of this run; a TrnconvError in a process that has others than the one that started it."""
        here = versions_here(self.encoder.backend)
        if self.terms.versions is not None and here != self.terms.versions:
            others = "; ".join(here.differences(self.terms.versions).values())
            raise TrnconvError(
                f"on {gethostname()}: {others}. The first is what the process that started this run"
                " has: install the same versions on every machine."
            )
        return here

    def claim(self) -> Job:
        """Take the folder for this job, and note the limits and versions of this run.

        A TrnconvError if another job has the folder, or other versions were at work in it that are
        not accepted. Returned is the job as all workers of this run get it.
        """
        here = self.require_versions()
        stated = {**self.settings(), "versions": asdict(here)}
        if not self.folder.create(JOB, _document(stated)):
            self._require_same(JOB, self.settings())
            self._accept_versions(here)
        self._note(LIMITS, asdict(self.limits))
        return replace(self, terms=replace(self.terms, versions=here))

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

    def _accept_versions(self, here: Versions) -> None:
        """Note versions that are new in this folder, if they are accepted by name."""
        first = read_json(self.folder.read(JOB)).get("versions")
        noted = [first, *(read_json(data) for data in self._noted(VERSIONS))]
        known = [from_json(Versions, stated) for stated in noted if stated is not None]
        if here in known:
            return
        others = here.differences(known[-1] if known else None)
        refused = [words for name, words in others.items() if name not in self.terms.accept]
        if refused:
            raise TrnconvError(
                f"{self.out} holds latents of other versions: {'; '.join(refused)}. Latents may"
                " differ. Use the versions of before, encode into another folder, or accept each"
                " by its name: --accept-version torch."
            )
        self._note(VERSIONS, asdict(here))

    def _noted(self, kind: str) -> list[bytes | None]:
        names = sorted(self.folder.sizes(kind))
        return [self.folder.read(f"{kind}/{name}") for name in names]

    def _note(self, kind: str, stated: dict[str, Any]) -> None:
        """One more document of a kind, unless the last one says the same."""
        data = _document(stated)
        while True:
            noted = self._noted(kind)
            if noted and noted[-1] == data:
                return
            if self.folder.create(f"{kind}/{len(noted):05}.json", data):
                return

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
    leaves: dict[str, Any] = {}
    todo = [(name, value)]
    while todo:
        path, inner = todo.pop()
        if isinstance(inner, dict):
            todo += [(f"{path}.{key}" if path else key, leaf) for key, leaf in inner.items()]
        else:
            leaves[path] = inner
    return dict(sorted(leaves.items()))
