"""Agreement: ranks say what they are about to do, and one that says something else is named.

Ranks that differ would exchange rows all the same: of other weights, a wrong video; of another
shape, a wait that ends late and blames whoever waited. A statement is facts by name, written to
the group's store. It is read where it can have changed: when a model is sharded, at the first call,
and by a rank that is about to do something else than before, as with every new video.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from nkisim.version import __version__
from trnconv.errors import TrnconvError
from trnconv.host.record import read_host
from trnconv.parallel.errors import LostRankError, RanksDifferError
from trnconv.parallel.watch import Watch

Facts = dict[str, str]
# What changes results or what is sent. Folders may differ from host to host.
VARIABLES = """TRNCONV_BACKEND TRNCONV_TUNED NEURON_PLATFORM_TARGET_OVERRIDE NEURON_CC_FLAGS
NEURON_LOGICAL_NC_CONFIG""".split()
_SHOWN = 3  # differences of a message
_POLL_S, _LONGEST_POLL_S = 0.002, 0.03  # between two looks for statements, at first and at last
_KEPT = 64  # statements, for ranks that are behind
_ABSENT = "nothing"


def environment_facts() -> Facts:
    """Versions, variables and what the host's probes found."""
    precision = torch.get_float32_matmul_precision()
    return {
        "the version of trnconv": __version__,
        "the version of torch": torch.__version__,
        "the version of python": platform.python_version(),
        "torch's precision of float32 products": precision,
        "the workarounds of the host": " ".join(read_host().workarounds),
        **{f"the variable {name}": os.environ.get(name, "") for name in VARIABLES},
    }


class WeightDigests:
    """Digests of a model's weights, made again when one was written to or replaced."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._state: tuple[Any, ...] = ()
        self._facts: Facts = {}

    def facts(self) -> Facts:
        """One for every parameter and buffer; of parts of one (FSDP), how it is cut."""
        model = self._model
        named = [*model.named_parameters(), *model.named_buffers()]
        state = tuple((id(tensor), tensor._version) for _, tensor in named)  # noqa: SLF001 (torch's)
        if state != self._state:
            self._facts = {f"the weight {name}": _digest(tensor) for name, tensor in named}
            self._state = state
        return self._facts

    def digest(self) -> str:
        """One for all of them."""
        text = json.dumps(self.facts())
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _digest(tensor: torch.Tensor) -> str:
    said = f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
    if hasattr(tensor, "placements"):  # a DTensor: every rank has another part
        return f"{said} {tensor.placements}"
    if tensor.is_meta:
        return said
    return f"{said} {hashlib.blake2b(_bytes(tensor), digest_size=8).hexdigest()}"


def _bytes(tensor: torch.Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    data: memoryview = flat.view(torch.uint8).numpy().data
    return data


def video_facts(whole: torch.Tensor, *, with_values: bool) -> Facts:
    """What every rank says of a video that all of them have; values by a CRC, which is quick."""
    facts = {"the video": f"{tuple(whole.shape)} {whole.dtype}"}
    if with_values and not whole.is_meta:
        facts["the values of the video"] = f"CRC {zlib.crc32(_bytes(whole)):08x}"
    return facts


def difference(statements: Sequence[Facts]) -> str:
    """Who says something else than most, and what; empty if all say the same.

    Where as many say one thing as another, the lowest rank is taken to be right.
    """
    differing: dict[str, str] = {}
    who: Counter[int] = Counter()
    for name in dict.fromkeys(name for facts in statements for name in facts):
        said = [facts.get(name, _ABSENT) for facts in statements]
        times = Counter(said)
        usual = max(times, key=lambda value: times[value])  # the first of equals: rank 0's
        others = [rank for rank, value in enumerate(said) if value != usual]
        if others:
            who.update(others)
            there = ", ".join(f"{said[rank]} on rank {rank}" for rank in others[:_SHOWN])
            differing[name] = f"{name}: {there}, {usual} on rank {said.index(usual)}"
    if not differing:
        return ""
    ranks = " and ".join(f"rank {rank}" for rank in sorted(who))
    more = len(differing) - _SHOWN
    listed = "; ".join(list(differing.values())[:_SHOWN])
    beyond = f"; and {more} more" if more > 0 else ""
    return f"{ranks} of {len(statements)} differs in {listed}{beyond}"


class Agreement:
    """This rank's statements, and those of the others."""

    def __init__(self, store: Any, watch: Watch, ranks: int, timeout_s: float) -> None:
        self._store = store
        self._watch = watch
        self._ranks = ranks
        self._timeout_s = timeout_s
        self._before: dict[str, Facts] = {}  # by occasion
        self._times: Counter[str] = Counter()

    def state(self, occasion: str, facts: Facts) -> None:
        """Say what this rank is about to do; RanksDifferError if another says something else.

        Others are asked if this rank says something new. A rank that does not ask, because for it
        nothing changed, learns of it by the watch.
        """
        number = self._times[occasion]
        self._times[occasion] += 1
        try:
            self._store.set(_key(occasion, number, self._watch.rank), json.dumps(facts))
            if number >= _KEPT:
                self._store.delete_key(_key(occasion, number - _KEPT, self._watch.rank))
        except RuntimeError as gone:  # torch's, of a store whose host has ended
            raise self._lost("nothing can be said", occasion, time.monotonic()) from gone
        if self._before.get(occasion) == facts:
            return
        self._before[occasion] = facts
        said = [json.loads(text) for text in self._all(occasion, number)]
        if differing := difference(said):
            text = f"ranks disagree on {occasion}: {differing}"
            self._watch.give_up(text)
            raise _ranks_differ(text)

    def _all(self, occasion: str, number: int) -> list[bytes]:
        keys = [_key(occasion, number, rank) for rank in range(self._ranks)]
        began, pause_s = time.monotonic(), _POLL_S
        try:
            while not self._store.check(keys):
                late = time.monotonic() - began > self._timeout_s
                if late or self._watch.dead() is not None:
                    absent = next(n for n, key in enumerate(keys) if not self._store.check([key]))
                    raise self._lost(f"rank {absent} did not say what it does", occasion, began)
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_POLL_S)
            statements: list[bytes] = self._store.multi_get(keys)
        except RuntimeError as gone:  # torch's, of a store whose host has ended
            raise self._lost("the others cannot be asked", occasion, began) from gone
        return statements

    def _lost(self, what: str, occasion: str, began: float) -> TrnconvError:
        verdict = self._watch.verdict(began)
        differing = difference_heard(self._watch)
        return differing or LostRankError(f"{what} ({occasion}): {verdict}. Start the group again.")


def difference_heard(watch: Watch) -> RanksDifferError | None:
    """The error of a rank that was told of a difference, when all others were, too."""
    if not watch.reason:
        return None
    watch.wait_until_all_know()
    return _ranks_differ(watch.reason)


def _ranks_differ(reason: str) -> RanksDifferError:
    return RanksDifferError(f"{reason}. Start all ranks alike.")


def _key(occasion: str, number: int, rank: int) -> str:
    return f"trnconv/said/{occasion}/{number}/{rank}"
