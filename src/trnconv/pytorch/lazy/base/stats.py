"""What a patched model did: its convolutions, and the data it moved besides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from nkisim.machine import Machine
from trnconv import traces
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.limits import DEFAULT_BUDGET
from trnconv.problem.policy import DEFAULT_POLICY, Policy

DIFFERENTIATED = "operators on tensors that require grad, met inside of the model"


@dataclass(frozen=True)
class PolicedConv(traces.TracedConv):
    """One convolution as a kernel gets it, and what it may give for speed."""

    policy: Policy = DEFAULT_POLICY

    def problem(
        self, machine: Machine, budget: int = DEFAULT_BUDGET, policy: Policy | None = None
    ) -> ConvProblem:
        """As of any work; `policy` replaces its own."""
        return super().problem(machine, budget, policy or self.policy)


@dataclass(frozen=True)
class Copy:
    """Data moved by something else than a convolution."""

    module: str
    kind: str  # pad, cat, upsample, cache, ...
    moved_bytes: int  # read and written


@dataclass
class PatchStats:
    """Counts of equal work, in the order it first happened."""

    works: Counter[PolicedConv] = field(default_factory=Counter)
    copies: Counter[Copy] = field(default_factory=Counter)
    left_to_torch: Counter[tuple[str, str]] = field(
        default_factory=Counter
    )  # module, why torch did it
    repeated: Counter[str] = field(default_factory=Counter)  # run again because fused too early
    joined: Counter[str] = field(default_factory=Counter)  # calls that run with the one before
    eager: Counter[str] = field(default_factory=Counter)  # calls without rewrites, and why
    _modules: list[str] = field(default_factory=list)
    _last: Copy | None = None

    @property
    def calls(self) -> int:
        """Convolutions that the model called."""
        return sum(self.works.values()) + sum(self.joined.values())

    @property
    def module(self) -> str:
        """The module that is running."""
        return self._modules[-1] if self._modules else ""

    @contextmanager
    def inside(self, module: str) -> Iterator[None]:
        """While a module runs."""
        self._modules.append(module)
        try:
            yield
        finally:
            self._modules.pop()

    def moved(self, kind: str, moved_bytes: int) -> None:
        """Count a copy of the running module."""
        self._last = Copy(self.module, kind, moved_bytes)
        self.copies[self._last] += 1

    def call_last(self, before: str, kind: str) -> None:
        """The last copy, if it was of one kind, was of another."""
        last = self._last
        if last is None or last.kind != before:
            return
        self.copies[last] -= 1
        if not self.copies[last]:
            del self.copies[last]
        self.moved(kind, last.moved_bytes)

    def left_to_autograd(self) -> None:
        """Count an operator that autograd records, of a model whose tensors want no gradient."""
        self.eager[DIFFERENTIATED] += 1

    def clear(self) -> None:
        """Forget what happened so far."""
        counts = (
            self.works,
            self.copies,
            self.left_to_torch,
            self.repeated,
            self.joined,
            self.eager,
        )
        for counter in counts:
            counter.clear()
