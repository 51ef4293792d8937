"""Pictures of the cookbook and the gallery are of the code, and of the times that pages show."""

import re

import pytest

from manual.pictures import COOKBOOK, DOCS, GALLERY, IMAGES, draw_page
from nkisim.machine import CONSTANTS_VERSION

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


@pytest.mark.parametrize("name", GALLERY)
def test_the_gallery_shows_a_picture_in_light_and_dark(name):
    picture = (IMAGES / "gallery" / f"{name}.svg").read_text()
    assert f"images/gallery/{name}.svg" in (DOCS / "gallery.md").read_text()
    assert "prefers-color-scheme: dark" in picture
    assert f"constants {CONSTANTS_VERSION}" in picture or name == "array"


@pytest.mark.parametrize("name", ["loop-drain", "two-cores"])
def test_a_picture_of_the_gallery_is_what_the_code_draws(name):
    assert GALLERY[name]() == (IMAGES / "gallery" / f"{name}.svg").read_text()
