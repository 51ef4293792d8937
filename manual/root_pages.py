"""MkDocs hook: pages of the repository's root are pages of the site, and stay where they are.

Links are written as they work in the repository (`../ARCHITECTURE.md`); here they are turned to
where the page is on the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
DOCS = "docs"
PLACES = {
    "ARCHITECTURE.md": "about/architecture.md",
    "CONTRIBUTING.md": "about/contributing.md",
    "CHANGELOG.md": "about/changelog.md",
}
LINK = re.compile(r"(\]\()([^)#\s:]+)(#[^)\s]*)?(\))")


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Add the root's pages to those of docs."""
    for name, place in PLACES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, place, content=turned(text, "", place)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn the links of a page of docs that lead to the root."""
    here = page.file.src_uri
    if here in PLACES.values():
        return markdown
    return turned(markdown, posixpath.join(DOCS, posixpath.dirname(here)), here)


def turned(text: str, folder: str, place: str) -> str:
    """The text of a page in a folder of the repository, with links for a place of the site."""

    def to_site(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[2]))
        on_site = PLACES.get(target, target.removeprefix(f"{DOCS}/"))
        seen = posixpath.relpath(on_site, posixpath.dirname(place) or ".")
        return f"{link[1]}{seen}{link[3] or ''}{link[4]}"

    return LINK.sub(to_site, text)
