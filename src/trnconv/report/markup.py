"""HTML and SVG from Python calls: names and values are escaped, and every tag is closed."""

from __future__ import annotations

from html import escape

_VOID = frozenset({"meta"})  # what HTML writes without an end


def tag(name: str, /, *content: str, **attributes: object) -> str:
    """An element with content that is markup already.

    `class_` is class, `font_size` is font-size. None leaves an attribute out, a number is written
    with two decimals at most.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_value(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return f"<{name}{written}/>"
    return f"<{name}{written}>{''.join(content)}</{name}>"


def words(text: str) -> str:
    """Text as content."""
    return escape(text, quote=False)


def _value(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def path(points: list[tuple[float, float]], *, closed: bool = False) -> str:
    """The `d` of straight lines."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) + ("Z" if closed else "")
