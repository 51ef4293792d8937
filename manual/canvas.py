"""SVG for the gallery: few elements, and colours that follow the reader's light or dark."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

FONT = "Inter,'Segoe UI','Helvetica Neue',Helvetica,Arial,'DejaVu Sans',sans-serif"
_LIGHT = {"paper": "#ffffff", "ink": "#1f2933", "faint": "#56616f", "lane": "#eef1f5"}
_DARK = {"paper": "#14181d", "ink": "#e6eaef", "faint": "#a3adb9", "lane": "#242b33"}
_LINES = ("#c9d0d9", "#46505c")  # of grids


def text(
    at: tuple[float, float], words: str, size: float = 14, kind: str = "ink", **more: str
) -> str:
    """A text that begins at a point; `more` are attributes, `_` for `-`."""
    rest = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    x, y = at
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" class="{kind}"'
    return f"<text {place}{rest}>{escape(words)}</text>"


def box(corner: tuple[float, float], size: tuple[float, float], fill: str, about: str = "") -> str:
    """A rectangle: `fill` is a colour, or the name of a style."""
    (x, y), (width, height) = corner, size
    paint = f'fill="{fill}"' if fill.startswith("#") else f'class="{fill}"'
    shape = f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" {paint}'
    return f"{shape}><title>{escape(about)}</title></rect>" if about else f"{shape}/>"


def line(begin: tuple[float, float], end: tuple[float, float], kind: str = "grid") -> str:
    """A thin line."""
    (x1, y1), (x2, y2) = begin, end
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def picture(size: tuple[float, float], title: str, parts: Iterable[str]) -> str:
    """The file."""
    width, height = size
    about = f'width="{width:.0f}" height="{height:.0f}" font-family="{FONT}" role="img"'
    dark = f"@media (prefers-color-scheme: dark) {{{_style(_DARK, _LINES[1])}}}"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" {about}>',
        f"<title>{escape(title)}</title>",
        f"<style>{_style(_LIGHT, _LINES[0])}\n{dark}</style>",
        box((0, 0), size, "paper"),
    )
    return "\n".join((*head, *parts, "</svg>\n"))


def _style(colours: dict[str, str], grid: str) -> str:
    fills = "".join(f".{name}{{fill:{colour}}}" for name, colour in colours.items())
    lines = f".grid{{stroke:{grid}}}.roof{{stroke:{colours['ink']};stroke-width:1.6;fill:none}}"
    return f"{fills}{lines}.mark{{stroke:#d55e00;stroke-width:1.6;stroke-dasharray:5 4}}"
