"""The blocks of docs/guides/streaming.md run, and print what the page shows.

They need diffusers, so the page fences them as ```py, which tests/test_docs.py leaves alone.
"""

import re
from pathlib import Path

import pytest

from test_docs import python_blocks, run

pytestmark = pytest.mark.diffusers

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "streaming.md"


def test_the_code_of_the_guide_runs_and_prints_what_it_shows(tmp_path):
    page = re.sub(r"^```py$", "```python", GUIDE.read_text(), flags=re.MULTILINE)
    blocks = list(python_blocks(page))
    assert len(blocks) == 3
    for block, output in zip(blocks, run(blocks, tmp_path), strict=False):
        assert output.rstrip() == block.printed, f"line {block.first_line}"
