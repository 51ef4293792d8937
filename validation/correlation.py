"""Correlation: modelled times against published ones, as one number and as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import ceil, floor, log10
from statistics import StatisticsError, correlation

from nkisim.machine import MACHINES
from validation.outcome import Outcome
from validation.row import GROUPS
from validation.sets import HELD, set_of

BAND = 1.4  # the error that a summary counts to
_SIDE, _LEFT, _TOP, _BOTTOM, _LEGEND = 560, 78, 16, 56, 190
_RADIUS = 4.5
_COLOURS = dict(zip(MACHINES, ("#b4552d", "#2a6f97", "#5b8c3a"), strict=True))
_TITLE = "Modelled against published times of all rows, both axes logarithmic"
_UNITS = ((1e-3, "ns"), (1.0, "us"), (1e3, "ms"), (1e6, "s"))  # in microseconds


def log_correlation(outcomes: Sequence[Outcome]) -> float | None:
    """Pearson's correlation of the logarithms; None where it is not defined."""
    published = [log10(outcome.row.published_us) for outcome in outcomes]
    modelled = [log10(outcome.modelled.default_us) for outcome in outcomes]
    try:
        return correlation(published, modelled)
    except StatisticsError:  # fewer than two rows, or all of one value
        return None


def draw(outcomes: Sequence[Outcome]) -> str:
    """The picture as SVG: colour is the machine, shape the group; held-out rows are filled."""
    return _Plot(outcomes).svg()


class _Plot:
    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        self.outcomes = outcomes
        values = [
            us
            for outcome in outcomes
            for us in (outcome.row.published_us, outcome.modelled.default_us)
        ]
        self.low, self.high = floor(log10(min(values))), ceil(log10(max(values)))
        if self.low == self.high:
            self.high += 1

    def svg(self) -> str:
        width, height = _LEFT + _SIDE + _LEGEND, _TOP + _SIDE + _BOTTOM
        opening = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
            ' font-family="system-ui, Segoe UI, Helvetica, Arial, sans-serif" font-size="12"'
            ' role="img" aria-labelledby="t">'
        )
        lines = [
            opening,
            f'<title id="t">{_TITLE}</title>',
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
            *self._band(),
            *self._grid(),
            *(self._dot(outcome) for outcome in self.outcomes),
            *self._legend(),
            "</svg>",
        ]
        return "\n".join(lines) + "\n"

    def _x(self, us: float) -> float:
        return _LEFT + _SIDE * (log10(us) - self.low) / (self.high - self.low)

    def _y(self, us: float) -> float:
        return _TOP + _SIDE - _SIDE * (log10(us) - self.low) / (self.high - self.low)

    def _band(self) -> Iterator[str]:
        """The equal times, and between two thin lines those within the band."""
        first, last = 10.0**self.low, 10.0**self.high
        for factor, style in ((1.0, "1.5"), (BAND, "0.8"), (1 / BAND, "0.8")):
            start, end = max(first, first / factor), min(last, last / factor)
            dash = "" if factor == 1.0 else ' stroke-dasharray="5 4"'
            yield (
                f'<path d="M{self._x(start):.1f} {self._y(start * factor):.1f}'
                f'L{self._x(end):.1f} {self._y(end * factor):.1f}"'
                f' stroke="#7a8a92" stroke-width="{style}" fill="none"{dash}/>'
            )

    def _grid(self) -> Iterator[str]:
        left, right, bottom = _LEFT, _LEFT + _SIDE, _TOP + _SIDE
        for power in range(self.low, self.high + 1):
            x, y, label = self._x(10.0**power), self._y(10.0**power), _tick(power)
            yield f'<path d="M{x:.1f} {_TOP}V{bottom}M{left} {y:.1f}H{right}" stroke="#e3e8ea"/>'
            yield f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{label}</text>'
            yield f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
        middle = _LEFT + _SIDE / 2
        yield f'<text x="{middle:.1f}" y="{bottom + 42}" text-anchor="middle">published</text>'
        turned = f'transform="translate(16 {_TOP + _SIDE / 2:.1f}) rotate(-90)"'
        yield f'<text {turned} text-anchor="middle">modelled, default reading</text>'

    def _dot(self, outcome: Outcome) -> str:
        row = outcome.row
        x, y = self._x(row.published_us), self._y(outcome.modelled.default_us)
        title = f"<title>{escape(row.number)}: {escape(row.title)}, {outcome.ratio:.2f}</title>"
        colour = _COLOURS[row.machine]
        fill = colour if set_of(row) == HELD else "none"
        return (
            f'<path d="{_marker(row.group, x, y)}" stroke="{colour}" stroke-width="1.4"'
            f' fill="{fill}">{title}</path>'
        )

    def _legend(self) -> Iterator[str]:
        x, y = _LEFT + _SIDE + 24, _TOP + 16
        used = [outcome.row for outcome in self.outcomes]
        machines = [name for name in _COLOURS if any(row.machine == name for row in used)]
        for name in machines:
            shape = f'<rect x="{x - 6}" y="{y - 9}" width="12" height="8" fill="{_COLOURS[name]}"/>'
            yield f'{shape}<text x="{x + 14}" y="{y}">{name}</text>'
            y += 20
        y += 10
        for group in GROUPS:
            shape = f'<path d="{_marker(group, x, y - 4)}" stroke="#34505b" fill="none"/>'
            yield f'{shape}<text x="{x + 14}" y="{y}">{group}</text>'
            y += 20
        y += 10
        for label, fill in ((HELD, "#34505b"), ("fitted or seen", "none")):
            shape = f'<path d="{_marker(GROUPS[-1], x, y - 4)}" stroke="#34505b" fill="{fill}"/>'
            yield f'{shape}<text x="{x + 14}" y="{y}">{label}</text>'
            y += 20
        y += 10
        dashes = f'<path d="M{x - 8} {y - 4}H{x + 8}" stroke="#7a8a92" stroke-dasharray="5 4"/>'
        yield f'{dashes}<text x="{x + 14}" y="{y}">a factor of {BAND}</text>'


def _tick(power: int) -> str:
    us = 10.0**power
    scale, unit = max((pair for pair in _UNITS if pair[0] <= us * 1.001), default=_UNITS[0])
    return f"{us / scale:g} {unit}"


def _marker(group: str, x: float, y: float) -> str:
    """The outline of a group's sign: a triangle, a square or a circle."""
    r = _RADIUS
    if group == GROUPS[0]:
        return f"M{x:.1f} {y - r:.1f}L{x + r:.1f} {y + r:.1f}H{x - r:.1f}Z"
    if group == GROUPS[1]:
        return f"M{x - r:.1f} {y - r:.1f}H{x + r:.1f}V{y + r:.1f}H{x - r:.1f}Z"
    iteration = f"a{r} {r} 0 1 0 {{}} 0"
    return f"M{x - r:.1f} {y:.1f}{iteration.format(2 * r)}{iteration.format(-2 * r)}Z"
