"""`python -m benchmarks integrations`: Wan's decoder by vllm-omni-neuron's routing and by ours.

The decoder is diffusers' (their file has the same convolutions), on the meta device. A chunk is one
latent frame with its caches, of whole frames or of tiles of 256 x 256 pixels. Sites that they send
to nki-library's conv3d have the time of the scatter baseline, halved on two cores as if nothing
were lost. Those that they leave to the compiler have 20 TFLOP/s a pair of cores: what PyTorch's own
conv3d was measured to do on trn2 (64 channels, fp16, 32 x 128 x 128, by another project). Their
second kernel, for three output channels, has 6.49 ns an output position on one core: its published
source, traced and scheduled in the reading most favourable to it; halved too, though they do not
ask it to split its work. Copies, norms, attention and the borders between a compiler's code and
kernels are left out on both sides. All times are modelled.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.scatter_times import baseline_ns, stored
from benchmarks.table import Column, aligned
from nkisim.machine import CONSTANTS_VERSION
from trnconv.models import find

HELP = "Wan's decoder by vllm-omni-neuron's routing and by ours"
MODEL = "wan2.1"
CASES = {"whole frames, 720p": (90, 160), "tiles of 256 x 256": (32, 32)}  # latent rows, columns
COMPILER_FLOPS = 20e12  # a pair of cores
UNROLL_NS = 6.49  # an output position, one core
CORES = 2
MOST = 0.6  # of their time, a steady chunk
_STEADY_AT = 3  # latent frames: the third chunk has caches of the second


@dataclass(frozen=True)
class Comparison:
    """One chunk. Milliseconds, modelled."""

    case: str
    chunk: str
    accuracy: str
    sites: int
    served: int  # by them
    theirs_ms: float
    ours_ms: float
    theirs_served_ms: float  # of sites that they serve alone
    ours_served_ms: float

    @property
    def ratio(self) -> float:
        """Ours over theirs, all sites."""
        return self.ours_ms / self.theirs_ms

    @property
    def served_ratio(self) -> float:
        """The same of sites that they serve; 0 if there are none."""
        return self.ours_served_ms / self.theirs_served_ms if self.theirs_served_ms else 0.0


def chunks(rows: int, columns: int) -> dict[str, list[Any]]:
    """The calls of a first chunk and of a steady one."""
    import torch  # noqa: PLC0415 (optional)

    from trnconv.integrations.vllm_omni_neuron import chunks_of, site_calls  # noqa: PLC0415
    from trnconv.pytorch import model_builder  # noqa: PLC0415

    model = model_builder.build(find(MODEL), device="meta", dtype=torch.bfloat16)
    latent = torch.empty(1, 16, _STEADY_AT, rows, columns, device="meta", dtype=torch.bfloat16)
    with torch.no_grad():
        first, *_, steady = chunks_of(site_calls(model, lambda: model.decode(latent)))
    # diffusers applies the first convolution to all frames at once, they to every chunk
    entry, *rest = first
    one_frame = replace(entry, shape=replace(entry.shape, size=(1, rows, columns)))
    return {"first": [one_frame, *map(_with_zeros, rest)], "steady": [one_frame, *steady]}


def _with_zeros(call: Any) -> Any:
    """Their first chunk has caches too, of zeros; diffusers' has padding."""
    from trnconv.integrations.vllm_omni_neuron import route_of  # noqa: PLC0415 (torch)

    shape = call.shape
    frames, *size = shape.size
    _, *pads = shape.pad_before
    size, pads = (frames + shape.pad_before[0], *size), (0, *pads)
    filled = replace(shape, size=size, pad_before=pads)
    return replace(call, shape=filled, route=route_of(filled))


def their_ns(call: Any, known: Any) -> float:
    """A call by their routing."""
    shape = call.shape
    if not call.route.is_served:
        return 2 * float(shape.macs()) / COMPILER_FLOPS * 1e9
    if call.route.kernel == "conv3d":
        return baseline_ns(shape, known) / CORES
    return UNROLL_NS * shape.batch * float(shape.positions()) / CORES


def compared(case: str, chunk: str, calls: Sequence[Any], accuracy: str, known: Any) -> Comparison:
    """One chunk, both ways."""
    from trnconv.integrations.vllm_omni_neuron import modelled_ns  # noqa: PLC0415 (torch)

    theirs = [their_ns(call, known) / 1e6 for call in calls]
    ours = [ns / 1e6 for ns in modelled_ns(calls, accuracy=accuracy)]
    served = [call.route.is_served for call in calls]
    return Comparison(
        case,
        chunk,
        accuracy,
        len(calls),
        sum(served),
        sum(theirs),
        sum(ours),
        sum(ms for ms, is_served in zip(theirs, served, strict=True) if is_served),
        sum(ms for ms, is_served in zip(ours, served, strict=True) if is_served),
    )


def table(rows: Sequence[Comparison]) -> str:
    """A row for each chunk."""
    names = ("sites\ntheirs", "sites\nours", "theirs\nms", "ours\nms", "ours /\ntheirs")
    names += ("their sites\ntheirs, ms", "their sites\nours, ms", "ours /\ntheirs")
    columns = [Column("case", "<"), Column("chunk", "<"), Column("accuracy", "<")]
    columns += [Column(name) for name in names]
    return aligned(columns, [_cells(row) for row in rows])


def _cells(row: Comparison) -> list[str]:
    times = [f"{row.theirs_ms:.2f}", f"{row.ours_ms:.2f}", f"{row.ratio:.3f}"]
    served = [f"{row.theirs_served_ms:.2f}", f"{row.ours_served_ms:.2f}"]
    last = f"{row.served_ratio:.3f}" if row.theirs_served_ms else "-"
    counts = [f"{row.served}/{row.sites}", f"{row.sites}/{row.sites}"]
    return [row.case, row.chunk, row.accuracy, *counts, *times, *served, last]


def left_over(calls: Sequence[Any]) -> list[str]:
    """What they leave to the compiler, a line each."""
    return [f"  {call.name}: {call.route.why}" for call in calls if not call.route.is_served]


def add_options(parser: argparse.ArgumentParser) -> None:
    """What the command can be asked for."""
    parser.add_argument("--case", choices=list(CASES), help="only this one")
    parser.add_argument("--sites", action="store_true", help="list what they leave to the compiler")


def main(options: argparse.Namespace) -> int:
    """Compare every chunk; the exit code."""
    print(
        f"Modelled, trn2, constants {CONSTANTS_VERSION}, default reading, bf16, {CORES} cores;"
        " nothing was measured.\n"
    )
    known, rows = stored(), []
    for case, size in CASES.items():
        if options.case not in (None, case):
            continue
        for chunk, calls in chunks(*size).items():
            rows += [
                compared(case, chunk, calls, accuracy, known) for accuracy in ("direct", "bf16")
            ]
            if options.sites:
                print(f"{case}, {chunk} chunk, left to the compiler:")
                print("\n".join(left_over(calls)))
    print(table(rows))
    steady = [row for row in rows if row.chunk == "steady"]
    for row in steady:
        for what, ratio in (("all sites", row.ratio), ("sites they serve", row.served_ratio)):
            met = "met " if ratio <= MOST else "MISSED "
            print(f"{met}{row.case}, {row.accuracy}, {what}: {ratio:.3f}, at most {MOST}")
    return 0
