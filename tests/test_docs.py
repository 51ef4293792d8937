"""The code in the documentation runs, and prints what the page says it prints.

All ```python blocks of a page make one program, in order, run in a fresh process. A ```text block
that follows a ```python block is that block's exact output.
"""

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    page
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    if re.search(r"^```python$", page.read_text(), re.MULTILINE)
)
END_OF_BLOCK = "\x1e"


class Block(NamedTuple):
    first_line: int  # of the content, counted from 1
    lines: list[str]
    printed: str | None  # the text block right after it


def fenced_blocks(page):
    """(language, first line, lines) of each fenced block of a page."""
    language, first, lines = None, 0, []
    for number, line in enumerate(page.splitlines(), start=1):
        if language is None:
            if line.startswith("```"):
                language, first, lines = line[3:], number + 1, []
        elif line == "```":
            yield language, first, lines
            language = None
        else:
            lines.append(line)


def python_blocks(page):
    blocks = [*fenced_blocks(page), ("", 0, [])]
    for (language, first, lines), (next_language, _, next_lines) in pairwise(blocks):
        if language == "python":
            yield Block(first, lines, "\n".join(next_lines) if next_language == "text" else None)


def program(blocks):
    """One script in which every line of code has the line number it has on the page."""
    script = []
    for block in blocks:
        script += [""] * (block.first_line - 1 - len(script))
        script += [*block.lines, f"print(end={END_OF_BLOCK!r})"]
    return "\n".join(script) + "\n"


def run(blocks, folder):
    script = folder / "page.py"
    script.write_text(program(blocks))
    result = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split(END_OF_BLOCK)


def test_the_readme_has_code_and_shows_its_output():
    blocks = list(python_blocks((ROOT / "README.md").read_text()))
    assert any(block.printed for block in blocks)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_runs_and_prints_what_the_page_shows(page, tmp_path):
    blocks = list(python_blocks(page.read_text()))
    for block, output in zip(blocks, run(blocks, tmp_path), strict=False):
        if block.printed is not None:
            assert output.rstrip() == block.printed, f"{page.name}, line {block.first_line}"


def test_a_block_is_paired_with_the_text_that_follows_it(tmp_path):
    page = "a\n```python\nx = 1\nprint(x)\n```\nb\n```text\n1\n```\n```python\nprint(x + 1)\n```\n"
    blocks = list(python_blocks(page))
    assert [(block.first_line, block.printed) for block in blocks] == [(3, "1"), (11, None)]
    assert run(blocks, tmp_path) == ["1\n", "2\n", ""]
