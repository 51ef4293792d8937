"""Pictures of the cookbook are of the kernels and times that its pages show."""

import re

import pytest

from manual.pictures import COOKBOOK, DOCS, draw_page

PAGES = sorted(page for page in COOKBOOK.glob("*.md") if page.name != "index.md")


def test_there_are_eight():
    assert len(PAGES) == 8


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_picture_shows_the_time_and_the_lines_of_its_page(page):
    text = page.read_text()
    picture = (DOCS / "images" / "cookbook" / f"{page.stem}.svg").read_text()
    makespan = re.search(r"^makespan +([\d.]+ us);", text, re.MULTILINE)[1]
    assert f": {makespan}</text>" in picture
    label = re.search(r"^\S.*: (modelled, .* reading)$", text, re.MULTILINE)[1]
    assert label in picture
    assert f"../images/cookbook/{page.stem}.svg" in text


def test_a_picture_is_drawn_by_the_command_of_its_page(tmp_path):
    page = COOKBOOK / "reduction.md"
    (drawn,) = draw_page(page, tmp_path)
    assert drawn.read_text() == (DOCS / "images" / "cookbook" / "reduction.svg").read_text()
