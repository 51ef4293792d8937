"""What chunks of a decode would take on our kernels, modelled, beside who serves their sites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import nn

from nkisim.machine import CONSTANTS_VERSION, TRN2, Machine
from trnconv.errors import ShapeError
from trnconv.integrations.vllm_omni_neuron.sites import SiteCall, chunks_of, site_calls
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.policy import DIRECT, policy_of
from trnconv.runtime.pricing import price


@dataclass(frozen=True)
class ChunkReport:
    """One chunk of a decode: its sites, before and after `install_`, and what they would take."""

    chunk: str
    sites: int
    before: int  # of them on nki-library's kernels without `install_`; with it, all are ours
    modelled_ns: float
    basis: str  # machine, constants, accuracy

    def __str__(self) -> str:
        """One line."""
        return (
            f"{self.chunk} chunk: {self.sites} sites, on kernels {self.before} before and"
            f" {self.sites} after; {self.modelled_ns / 1e6:.2f} ms modelled ({self.basis})"
        )


def chunk_reports(
    vae: nn.Module,
    decode: Callable[[], object],
    *,
    machine: Machine = TRN2,
    accuracy: str = DIRECT,
) -> list[ChunkReport]:
    """The first chunk and the steady one, the last, of `decode()`; on the meta device in seconds.

    It has to decode three latent frames at least: caches of the second chunk are not yet full.
    """
    chunks = chunks_of(site_calls(vae, decode))
    if len(chunks) < 3:
        raise ShapeError(
            f"the decode has {len(chunks)} chunks: a steady one is the third."
            " Decode three latent frames or more."
        )
    basis = f"{machine.name}, constants {CONSTANTS_VERSION}, {accuracy}, default reading"
    return [
        ChunkReport(
            name,
            len(calls),
            sum(call.route.is_served for call in calls),
            sum(modelled_ns(calls, machine=machine, accuracy=accuracy)),
            basis,
        )
        for name, calls in (("first", chunks[0]), ("steady", chunks[-1]))
    ]


def modelled_ns(
    calls: Sequence[SiteCall], *, machine: Machine = TRN2, accuracy: str = DIRECT
) -> list[float]:
    """Of each call, on a launch of the machine, by the cost model; equal ones are planned once."""
    priced: dict[ConvProblem, float] = {}
    for call in calls:
        problem = _problem(call, machine, accuracy)
        if problem not in priced:
            priced[problem] = price(problem, beyond_hbm=True).ns
    return [priced[_problem(call, machine, accuracy)] for call in calls]


def _problem(call: SiteCall, machine: Machine, accuracy: str) -> ConvProblem:
    return ConvProblem(call.shape, machine, policy=policy_of(accuracy))
