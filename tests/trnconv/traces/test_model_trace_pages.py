"""The page on copies has what is stored."""

import re
from collections import Counter
from pathlib import Path

import pytest

from trnconv.models import find
from trnconv.traces import shipped

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "copies.md"
ROWS = re.findall(r"^\| ([\w.-]+) \| (encode|decode) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
ORDER = ("contiguous", "permute", "repeat")


def gigabytes(moved_bytes):
    if not moved_bytes:
        return "0"
    return f"{moved_bytes / 1e9:.2f}" if moved_bytes < 1e11 else f"{moved_bytes / 1e9:.0f}"


@pytest.mark.parametrize(("name", "phase", "cells"), ROWS)
def test_a_row_is_what_is_stored(name, phase, cells):
    entry = find(name)
    moved = Counter()
    for copy in shipped(entry, entry.production, phase).moved:
        moved["order" if copy.kind in ORDER else copy.kind] += copy.moved_bytes
    columns = [moved[kind] for kind in ("pad", "cat", "upsample", "cache", "order")]
    assert sum(columns) == moved.total()
    assert cells == " | ".join(map(gigabytes, [moved.total(), *columns]))


def test_every_model_of_the_page_has_both_phases():
    assert len(ROWS) == 2 * len({name for name, _, _ in ROWS}) > 30
