"""The roofline: how fast each layer is, over how much it computes for each byte it moves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, floor, log10, sqrt

from trnconv.report.content import LayerRow, Report
from trnconv.report.markup import path, tag, words
from trnconv.report.numbers import percent, significant

WIDTH, HEIGHT = 1040, 430
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 1014, 22, 384
_LABELLED = 8
_WORTH_A_LABEL = 0.02  # of the time
_NUMBER_INSIDE_PX = 9.0
_LINE_PX = 19
_LIST_PX = (806, 816, 992)  # number, name, share
_LARGEST_PX, _LEAST_PX = 34.0, 3.0
_STEPS = (1, 2, 5)


@dataclass(frozen=True)
class Scale:
    """Logarithms on a line of pixels."""

    low: float
    high: float
    first_px: float
    last_px: float

    def px(self, value: float) -> float:
        """Where a value is drawn."""
        share = log10(value / self.low) / log10(self.high / self.low)
        return self.first_px + share * (self.last_px - self.first_px)

    def ticks(self) -> list[float]:
        """1, 2, 5, 10, ... inside."""
        powers = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
        every = [step * 10.0**power for power in powers for step in _STEPS]
        return [value for value in every if self.low <= value <= self.high]


@dataclass(frozen=True)
class PixelBox:
    """A piece of the picture, in pixels."""

    left: float
    top: float
    right: float
    bottom: float


def _round_down(value: float) -> float:
    power = 10.0 ** floor(log10(value))
    return max(step * power for step in _STEPS if step * power <= value * (1 + 1e-9))


def _round_up(value: float) -> float:
    power = 10.0 ** floor(log10(value))
    return min(step * power for step in (*_STEPS, 10) if step * power >= value * (1 - 1e-9))


def roofline(report: Report) -> str:
    """An SVG figure; colours are those of the page's style."""
    return _Roofline(report).svg()


class _Roofline:
    def __init__(self, report: Report) -> None:
        self.report = report
        self.layers = report.layers
        peak, rate = report.machine.peak_tflops, report.machine.hbm_gb_per_s
        self.ridge = 1e3 * peak / rate  # FLOP per byte
        at = [layer.flop_per_byte for layer in self.layers]
        speeds = [layer.tflops for layer in self.layers]
        around = (self.ridge / 4, 4 * self.ridge)
        low, high = _round_down(min(*at, *around) / 1.3), _round_up(1.3 * max(*at, *around))
        self.x = Scale(low, high, _LEFT, _RIGHT)
        least = _round_down(min(*speeds, peak / 15) / 1.2)
        self.y = Scale(least, 1.25 * max(*speeds, peak), _BOTTOM, _TOP)

    def svg(self) -> str:
        title = "Roofline: TFLOP/s of each layer over FLOP per byte of HBM traffic, modelled"
        roof = tag("path", d=path(self._roof()), class_="roof")
        parts = [*self._grid(), roof, *self._dots(), *self._names(), *self._labels()]
        return tag(
            "svg",
            tag("title", words(title)),
            tag("g", *parts),
            viewBox=f"0 0 {WIDTH} {HEIGHT}",
            role="img",
            aria_label=title,
            class_="figure",
        )

    def _grid(self) -> Iterator[str]:
        for value in self.x.ticks():
            at = self.x.px(value)
            yield tag("line", x1=at, x2=at, y1=_TOP, y2=_BOTTOM, class_="grid")
            yield tag(
                "text",
                significant(value, 1),
                x=at,
                y=_BOTTOM + 18,
                class_="tick",
                text_anchor="middle",
            )
        for value in self.y.ticks():
            at = self.y.px(value)
            yield tag("line", x1=_LEFT, x2=_RIGHT, y1=at, y2=at, class_="grid")
            yield tag(
                "text",
                significant(value, 1),
                x=_LEFT - 8,
                y=at + 4,
                class_="tick",
                text_anchor="end",
            )
        yield tag(
            "text",
            "FLOP per byte of HBM traffic",
            x=_RIGHT,
            y=_BOTTOM + 38,
            class_="tick",
            text_anchor="end",
        )
        yield tag("text", "TFLOP/s", x=_LEFT - 8, y=_TOP - 8, class_="tick", text_anchor="start")

    def _roof(self) -> list[tuple[float, float]]:
        """Where the roof begins, its ridge and its end."""
        machine = self.report.machine
        slope = [(value, value * machine.hbm_gb_per_s / 1e3) for value in (self.x.low, self.ridge)]
        if slope[0][1] < self.y.low:
            slope[0] = (1e3 * self.y.low / machine.hbm_gb_per_s, self.y.low)
        line = [*slope, (self.x.high, machine.peak_tflops)]
        return [(self.x.px(x), self.y.px(y)) for x, y in line]

    def _names(self) -> Iterator[str]:
        """What the two parts of the roof are, over dots that lie there."""
        machine = self.report.machine
        begin, ridge, (_, top) = self._roof()
        peak = f"Tensor engine, {machine.peak_tflops:.1f} TFLOP/s"
        style = {"class_": "note halo", "text_anchor": "end"}
        yield tag("text", peak, x=_RIGHT - 4, y=top + 16, **style)
        x, y = (low + 0.35 * (high - low) for low, high in zip(begin, ridge, strict=True))
        rate = f"DMA, {machine.hbm_gb_per_s:.0f} GB/s"
        yield tag("text", rate, x=x - 10, y=y - 4, **style)

    def _place(self, layer: LayerRow) -> tuple[float, float]:
        return self.x.px(layer.flop_per_byte), self.y.px(layer.tflops)

    def _dots(self) -> Iterator[str]:
        for layer in self.layers:  # the largest first, so that small ones lie on top
            x, y = self._place(layer)
            about = (
                f"{layer.number}. {layer.label}: {layer.tflops:.1f} TFLOP/s,"
                f" {layer.flop_per_byte:.0f} FLOP/B, {percent(layer.share, 1)} of the time, bound"
                f" by {layer.bound}, {layer.algorithm}"
            )
            yield tag(
                "circle",
                tag("title", words(about)),
                cx=x,
                cy=y,
                r=_radius(layer),
                class_=f"dot {bound_class(layer.bound)}",
            )

    def _labels(self) -> Iterator[str]:
        """Numbers at the dots of the heaviest layers, and a list of their names where no dots are.

        A layer far right and far below the roof would be one that does next to nothing.
        """
        chosen = [layer for layer in self.layers[:_LABELLED] if layer.share >= _WORTH_A_LABEL]
        occupied: list[PixelBox] = []
        for layer in chosen:
            x, y = self._place(layer)
            inside = PixelBox(x - 8, y - 8, x + 8, y + 8)
            free = not any(overlap(inside, other) for other in occupied)
            if free and _radius(layer) > _NUMBER_INSIDE_PX:
                occupied.append(inside)
                about = {"x": x, "y": y + 4.5, "text_anchor": "middle"}
                yield tag("text", str(layer.number), **about, class_="number")
            else:
                yield from self._number_beside(layer, occupied)
        yield from self._list(chosen)

    def _number_beside(self, layer: LayerRow, occupied: list[PixelBox]) -> Iterator[str]:
        x, y = self._place(layer)
        reach = _radius(layer) + 8
        for right, down in ((0, -1), (1, 0), (-1, 0), (0, 1), (1, -1), (-1, -1)):
            at_x, at_y = x + right * reach, y + down * reach
            box = PixelBox(at_x - 6, at_y - 6, at_x + 6, at_y + 6)
            if not any(overlap(box, other) for other in occupied):
                occupied.append(box)
                about = {"x": at_x, "y": at_y + 4, "text_anchor": "middle"}
                yield tag("text", str(layer.number), **about, class_="tick halo")
                return

    def _list(self, chosen: list[LayerRow]) -> Iterator[str]:
        if not chosen:
            return
        top = _BOTTOM - 12 - _LINE_PX * len(chosen)
        left, right = _LIST_PX[0] - 22, _LIST_PX[2] + 10
        size = {"width": right - left, "height": _BOTTOM - top - 2}
        yield tag("rect", x=left, y=top, **size, class_="paper")
        for place, layer in enumerate(chosen, 1):
            y = top + _LINE_PX * place
            number, name, share = _LIST_PX
            yield tag("text", str(layer.number), x=number, y=y, class_="label", text_anchor="end")
            yield tag("text", words(layer.label), x=name, y=y, class_="label")
            yield tag("text", percent(layer.share), x=share, y=y, class_="label", text_anchor="end")


def _radius(layer: LayerRow) -> float:
    return max(_LEAST_PX, _LARGEST_PX * sqrt(layer.share))


def bound_class(bound: str) -> str:
    """The style of what bounds a layer: tensor, dma or other."""
    return bound if bound in ("tensor", "dma", "vector") else "other"


def overlap(first: PixelBox, second: PixelBox) -> bool:
    """Whether two boxes have a point in common."""
    apart_x = first.right < second.left or second.right < first.left
    return not (apart_x or first.bottom < second.top or second.bottom < first.top)
