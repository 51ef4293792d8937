"""SVG elements as strings: text, boxes, and bands of columns as one path."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

from nkisim.timing.report.palette import INK

FONT: Final = "Inter,'Segoe UI','Helvetica Neue',Helvetica,Arial,'DejaVu Sans',sans-serif"
_WIDTH_PER_SIZE: Final = 0.62  # of a character, in the widest of those fonts


def width_px(words: str, size: float) -> float:
    """At most how wide a text is."""
    return len(words) * size * _WIDTH_PER_SIZE


def shortened(words: str, size: float, room_px: float) -> str:
    """The text, or as much of it as fits."""
    if width_px(words, size) <= room_px:
        return words
    return words[: max(0, int(room_px / (size * _WIDTH_PER_SIZE)) - 1)].rstrip() + "…"


def text(
    at: tuple[float, float], words: str, size: float = 12, colour: str = INK, style: str = ""
) -> str:
    """A text whose baseline begins at a point; `style` is more attributes, as SVG writes them."""
    x, y = at
    more = f" {style}" if style else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{colour}"{more}>'
        f"{escape(words)}</text>"
    )


def box(corner: tuple[float, float], size: tuple[float, float], fill: str, inside: str = "") -> str:
    """A filled rectangle; `inside` is its tooltip."""
    (x, y), (width, height) = corner, size
    shape = f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" fill="{fill}"'
    return f"{shape}><title>{escape(inside)}</title></rect>" if inside else f"{shape}/>"


def line(begin: tuple[float, float], end: tuple[float, float], colour: str) -> str:
    """A thin line."""
    (x1, y1), (x2, y2) = begin, end
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{colour}" fill="none"/>'


def bands(
    corners: Iterable[tuple[float, float, float, float]], fill: str, *, crisp: bool = True
) -> str:
    """Many rectangles (left, top, right, bottom) of one colour; `crisp`: edges on whole pixels."""
    path = "".join(f"M{x:g} {y:g}H{right:g}V{low:g}H{x:g}Z" for x, y, right, low in corners)
    edges = 'shape-rendering="crispEdges" ' if crisp else ""
    return f'<path {edges}fill="{fill}" d="{path}"/>'
