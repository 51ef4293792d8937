"""PatchReport: every convolution of a patched model, and what it did since."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from nkisim.machine import TRN2, Machine
from trnconv.geometry import ConvShape
from trnconv.problem.cores import describe_cores
from trnconv.pytorch.lazy.base.stats import PatchStats, PolicedConv
from trnconv.pytorch.patching.own_code import weight_shape
from trnconv.runtime.pricing import Price, price


@dataclass(frozen=True)
class Entry:
    """A convolution of a model, by its dotted name."""

    name: str
    kind: str  # Conv3d, CausalConv3d, ...
    weight: tuple[int, ...]
    stride: tuple[int, ...]
    reason: str  # why it is left to torch; empty if it is patched

    @staticmethod
    def of(name: str, module: Any, reason: str) -> Entry:
        """The entry of a module."""
        weight, stride = weight_shape(module), module.stride
        steps = (stride,) * (len(weight) - 2) if isinstance(stride, int) else tuple(stride)
        return Entry(name, type(module).__name__, weight, steps, reason)

    @property
    def patched(self) -> bool:
        """Whether it runs on our kernels."""
        return not self.reason


@dataclass(frozen=True)
class Ran:
    """Equal calls of one convolution since the model was patched; modelled per call."""

    work: PolicedConv
    calls: int
    price: Price


@dataclass(frozen=True)
class PatchReport:
    """What was patched (`entries`), and, growing with every call, what ran (`stats`).

    Sizes are known once the model has run, on data or on the meta device; then `ran` has a plan
    and a modelled time for each call.
    """

    entries: tuple[Entry, ...]
    stats: PatchStats

    @property
    def patched(self) -> tuple[Entry, ...]:
        """Convolutions on our kernels."""
        return tuple(entry for entry in self.entries if entry.patched)

    @property
    def left_to_torch(self) -> tuple[Entry, ...]:
        """Convolutions left to torch, each with its reason."""
        return tuple(entry for entry in self.entries if not entry.patched)

    def fell_back(self) -> Counter[tuple[str, str]]:
        """Calls of patched convolutions that torch ran after all, by name and reason.

        Types are looked at in every call. Those under torch.compile are not counted.
        """
        patched = {entry.name for entry in self.patched}
        return Counter({key: n for key, n in self.stats.left_to_torch.items() if key[0] in patched})

    def ran(self, machine: Machine = TRN2) -> tuple[Ran, ...]:
        """Every distinct call so far, planned and priced for a launch of a machine."""
        return tuple(
            Ran(work, calls, price(work.problem(machine)))
            for work, calls in self.stats.works.items()
        )

    def copied(self) -> Counter[str]:
        """Bytes read and written by what no convolution took over, by kind."""
        total: Counter[str] = Counter()
        for copy, times in self.stats.copies.items():
            total[copy.kind] += copy.moved_bytes * times
        return total

    def __str__(self) -> str:
        """One line for each convolution, and one for each distinct call of it."""
        by_module: dict[str, list[Ran]] = {}
        for call in self.ran():
            by_module.setdefault(call.work.module, []).append(call)
        fell_back = self.fell_back()
        lines = [_first_line(self, len({name for name, _ in fell_back}))]
        for entry in self.entries:
            lines.append(_entry_line(entry))
            lines += [_ran_line(call) for call in by_module.pop(entry.name, [])]
            lines += [
                f"    {times} x by torch: {reason}"
                for (name, reason), times in fell_back.items()
                if name == entry.name
            ]
        for module, calls in by_module.items():
            lines.append(f"{module}  a function of torch, patched")
            lines += [_ran_line(call) for call in calls]
        for reason, times in self.stats.eager.items():
            lines.append(f"{times} x without rewrites: {reason}")
        if any(by_module) or self.stats.works:
            cores = describe_cores(TRN2.launch_cores)
            lines.append(f"times are modelled: trn2, {cores}, default reading")
        return "\n".join(lines)


def _first_line(report: PatchReport, fallen: int) -> str:
    counts = (
        f"{len(report.patched)} convolutions patched, {len(report.left_to_torch)} left to torch"
    )
    return f"{counts}; {fallen} of those patched ran by torch" if fallen else counts


def _entry_line(entry: Entry) -> str:
    weight = "x".join(map(str, entry.weight))
    what = "patched" if entry.patched else f"left to torch: {entry.reason}"
    return f"{entry.name}  {entry.kind} {weight}  {what}"


def _ran_line(ran: Ran) -> str:
    shape, plan = ran.work.shape, ran.price.plan.plan
    size = "x".join(map(str, (shape.batch, shape.c_in, *shape.size)))
    extras = [f"pieces {ran.work.pieces}"] if ran.work.pieces else []
    if isinstance(shape, ConvShape) and shape.upsample != (1, 1, 1):
        extras.append("upsampled " + "x".join(map(str, shape.upsample)))
    if ran.work.epilogue.residual != "none" or ran.work.epilogue.activation != "identity":
        extras.append(f"end {ran.work.epilogue.activation}, residual {ran.work.epilogue.residual}")
    norm = ran.work.epilogue.norm
    if norm is not None:
        extras.append(
            f"normed, {norm.activation}" if norm.keeps else f"only normed, {norm.activation}"
        )
    if plan.algorithm != "direct":
        extras.append(plan.family)
    loop = "looped" if plan.is_looped else "unrolled"
    extras.append(f"{ran.price.instructions} instructions, {loop}")
    time = f"{ran.price.ns / 1000:.1f} us, {ran.price.bound} bound"
    return f"    {ran.calls} x  {size}  {time}  ({'; '.join(extras)})"
