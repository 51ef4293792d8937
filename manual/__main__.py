"""`python -m manual`: write the pages that are made from code. With `--check`, only compare.

`python -m manual pictures` draws the pictures of the cookbook and the gallery again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from manual import command_page, machine_page, pictures, rules_page

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
PAGES = {
    REFERENCE / "machine.md": machine_page.render,
    REFERENCE / "command-line.md": command_page.render,
    REFERENCE / "device-rules.md": rules_page.render,
}


def stale() -> list[Path]:
    """The pages that do not say what the code says."""
    return [
        page
        for page, render in PAGES.items()
        if not page.exists() or page.read_text(encoding="utf-8") != render()
    ]


def main(arguments: list[str]) -> int:
    """Write the pages, or check them; the exit code."""
    found = stale()
    if arguments == ["--check"]:
        for page in found:
            print(f"{page.name} is not what the code says: run `python -m manual`")
        return 1 if found else 0
    if arguments == ["pictures"]:
        for picture in pictures.draw_all():
            print(f"drew {picture.name}")
        return 0
    if arguments:
        print(f"python -m manual {' '.join(arguments)}: there are `--check` and `pictures`")
        return 2
    for page in found:
        page.write_text(PAGES[page](), encoding="utf-8")
        print(f"wrote {page.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
