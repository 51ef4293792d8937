"""Who reads what along one axis: which outputs meet the input where, and with which taps.

Along an upsampled axis, neighbouring positions are one that lies in memory, so taps of an output
often meet the same one: they become one effective tap whose filter is the sum of theirs. Outputs
that lie as far apart as a position is repeated have the same effective taps: they are a phase.
"""

from __future__ import annotations

from dataclasses import dataclass

from trnconv.geometry import REPLICATE, ZEROS, ConvShape, TransposedShape

Phase = tuple[tuple[int, int], ...]  # (shift, tap): where an output reads, and with which tap
Taps = tuple[int, ...]
Merged = tuple[Taps, ...]  # taps that each effective tap sums up; empty: taps are as they are
_FRAMES = 0  # the axis that is short enough for taps to agree: video models compute single images


@dataclass(frozen=True)
class AxisReads:
    """Phases of an axis, the padding before it, what the padding holds, and what was merged."""

    phases: tuple[Phase, ...]
    pad: int
    mode: str = ZEROS
    merged: Merged = ()


def forward_phases(shape: ConvShape, axis: int) -> int:
    """Outputs of an axis that read unlike each other before everything repeats."""
    return min(shape.upsample[axis], shape.out_size(axis))


def forward_axis(shape: ConvShape, axis: int, *, every_tap: bool = False) -> AxisReads:
    """The reads of a convolution. Taps that only meet zeros go, taps that always agree merge.

    They agree if every output finds the same frame with them: a single one, repeated as padding.
    Both depend on the size of the input. With `every_tap` no tap goes, and taps merge only where
    positions are repeated.
    """
    lines = [_Line(shape, axis, phase) for phase in range(forward_phases(shape, axis))]
    met = [line.groups() if every_tap else line.met() for line in lines]
    if not any(met):
        met[0] = dict(list(lines[0].groups().items())[:1])  # nothing but padding
    first = min(shift for groups in met for shift in groups)
    numbers = _tap_numbers(met)
    phases = [
        tuple((shift - first, numbers[taps]) for shift, taps in groups.items()) for groups in met
    ]
    inside = all(
        line.is_inside(shift) for line, groups in zip(lines, met, strict=True) for shift in groups
    )
    mode = ZEROS if inside else shape.modes[axis]
    plain = len(met) == 1 and all(len(taps) == 1 for taps in numbers)
    return AxisReads(tuple(phases), -first, mode, () if plain else tuple(numbers))


def _tap_numbers(met: list[dict[int, Taps]]) -> dict[Taps, int]:
    """Numbers of effective taps: their own if there is one phase of single taps."""
    listed = list(dict.fromkeys(taps for groups in met for taps in groups.values()))
    if len(met) == 1 and all(len(taps) == 1 for taps in listed):
        return {taps: taps[0] for taps in listed}
    return {taps: number for number, taps in enumerate(listed)}


@dataclass(frozen=True)
class _Line:
    """The outputs of one phase of an axis: the first is `phase`."""

    shape: ConvShape
    axis: int
    phase: int

    def count(self) -> int:
        phases = forward_phases(self.shape, self.axis)
        return -(-(self.shape.out_size(self.axis) - self.phase) // phases)

    def groups(self) -> dict[int, Taps]:
        """The position that the first output reads with each tap, and taps that share one."""
        groups: dict[int, Taps] = {}
        for tap in range(self.shape.kernel[self.axis]):
            shift = self.shape.in_position(self.axis, self.phase, tap)
            groups[shift] = (*groups.get(shift, ()), tap)
        return groups

    def met(self) -> dict[int, Taps]:
        """The groups without those before the first and after the last that meet the input."""
        groups = self.groups()
        mode = self.shape.modes[self.axis]
        if mode == REPLICATE and self.axis == _FRAMES:
            return self._agreeing(groups)
        if mode != ZEROS:
            return groups
        meeting = [shift for shift in groups if self._meets_input(shift)]
        return {
            shift: taps
            for shift, taps in groups.items()
            if meeting and meeting[0] <= shift <= meeting[-1]
        }

    def is_inside(self, shift: int) -> bool:
        """Whether no output of the phase finds padding at a shift."""
        last = shift + (self.count() - 1) * self.shape.stride[self.axis]
        return shift >= 0 and last < self.shape.size[self.axis]

    def _meets_input(self, shift: int) -> bool:
        stride, size = self.shape.stride[self.axis], self.shape.size[self.axis]
        first = max(0, -(shift // stride))  # the first output at or beyond input position 0
        return first < self.count() and first * stride + shift < size

    def _agreeing(self, groups: dict[int, Taps]) -> dict[int, Taps]:
        """Groups that every output finds the same position for, as one at the innermost shift."""
        alike: dict[Taps, list[int]] = {}
        for shift in groups:
            alike.setdefault(self._sources(shift), []).append(shift)
        inner = {min(shifts, key=self._outside): shifts for shifts in alike.values()}
        return {
            shift: tuple(sorted(tap for agreeing in inner[shift] for tap in groups[agreeing]))
            for shift in sorted(inner)
        }

    def _positions(self, shift: int) -> range:
        stride = self.shape.stride[self.axis]
        return range(shift, shift + self.count() * stride, stride)

    def _sources(self, shift: int) -> tuple[int, ...]:
        last = self.shape.size[self.axis] - 1
        return tuple(min(max(at, 0), last) for at in self._positions(shift))

    def _outside(self, shift: int) -> int:
        size = self.shape.size[self.axis]
        return sum(not 0 <= at < size for at in self._positions(shift))


def transposed_axis(shape: TransposedShape, axis: int) -> AxisReads:
    """out = stride * in + dilation * tap - pad, solved for in, for every out modulo the stride."""
    stride, dilation, pad = shape.stride[axis], shape.dilation[axis], shape.pad_before[axis]
    read = [
        [
            ((phase + pad - dilation * tap) // stride, tap)
            for tap in range(shape.kernel[axis])
            if (phase + pad - dilation * tap) % stride == 0
        ]
        for phase in range(stride)
    ]
    first = min((shift for phase in read for shift, _ in phase), default=0)
    phases = [tuple(sorted((shift - first, tap) for shift, tap in phase)) for phase in read]
    return AxisReads(tuple(phases), -first)
