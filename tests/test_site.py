"""The site: every page is found, every link leads somewhere, nothing is stale or from outside.

What needs MkDocs is in the last section; the rest reads the pages as they lie.
"""

import ast
import importlib
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from doc_pages import ALL, ROOT
from manual import machine_page
from manual.__main__ import PAGES, stale
from source_imports import nodes

DOCS = ROOT / "docs"
ROOT_PAGES = {  # where the site has them
    "about/architecture.md": ROOT / "ARCHITECTURE.md",
    "about/contributing.md": ROOT / "CONTRIBUTING.md",
    "about/changelog.md": ROOT / "CHANGELOG.md",
}
LINK = re.compile(r"\]\(([^)\s]+)\)")
OUTSIDE = re.compile(r"^[a-z]+:")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def name(page):
    return str(page.relative_to(ROOT))


def prose(page):
    """A page without its code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def nav():
    """The files of the navigation, in order."""
    listed = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1]
    paths = re.findall(r": (\S+\.md)$", listed, re.MULTILINE)
    return [ROOT_PAGES.get(path, DOCS / path) for path in paths]


def anchors(page):
    """The anchors of a page's headings, as Python-Markdown makes them."""
    plain = [re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings(page)]
    return [re.sub(r"[-\s]+", "-", heading) for heading in plain]


def headings(page):
    linked = HEADING.findall(prose(page))
    return [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in linked]


def links(page):
    """(file, anchor or None) of each link of a page to this repository."""
    for target in LINK.findall(prose(page)):
        if not OUTSIDE.match(target):
            path, _, anchor = target.partition("#")
            yield (page.parent / path).resolve() if path else page, anchor or None


def test_every_page_is_in_the_navigation_once():
    listed = nav()
    assert len(listed) == len(set(listed))
    assert set(listed) == {*DOCS.rglob("*.md"), *ROOT_PAGES.values()}


def test_every_page_is_reached_from_the_first_by_links():
    found, waiting = set(), [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        if page.suffix == ".md" and page not in found:
            found.add(page)
            waiting += [target for target, _ in links(page)]
    assert set(nav()) - found == set()


@pytest.mark.parametrize("page", ALL, ids=name)
def test_every_link_leads_somewhere(page):
    broken = [
        f"{target.name}#{anchor or ''}"
        for target, anchor in links(page)
        if not target.exists() or (anchor and anchor not in anchors(target))
    ]
    assert broken == []


def test_the_anchors_are_as_the_site_makes_them():
    assert "unsupportederror-nkisim" in anchors(DOCS / "reference" / "errors.md")


# What is said of devices

A_TIME = re.compile(r"\d s\b|\b(us|ms)\b|\btimes as (fast|long)|\bx faster")
A_COMMAND = re.compile(r"`?(trnconv \w+|python -m (nkisim|benchmarks|validation|manual))\b")


@pytest.mark.parametrize("page", ALL, ids=name)
def test_a_page_with_times_names_the_command_that_makes_them(page):
    text = page.read_text()
    if A_TIME.search(prose(page)) and page.name not in {"CHANGELOG.md", "CONTRIBUTING.md"}:
        assert A_COMMAND.search(text)
        assert re.search("odelled|of CPU", text)


@pytest.mark.parametrize("page", ALL, ids=name)
def test_a_page_names_no_place_of_one_computer(page):
    assert re.findall(r"(?<![\w.:/])/(?:work|tmp|home|root|Users)/\S*", page.read_text()) == []


# What is said of the code


def test_pages_that_are_made_from_code_are_current():
    assert [page.name for page in stale()] == [], "run `python -m manual`"


def test_a_stale_page_is_noticed(tmp_path, monkeypatch):
    page = tmp_path / "machine.md"
    page.write_text(machine_page.render().replace("2.4", "2.5"))
    monkeypatch.setitem(PAGES, page, machine_page.render)
    assert page in stale()


def test_a_number_of_the_machine_comes_with_its_source():
    rows = [line for line in machine_page.render().splitlines() if line.startswith("| `pe_ghz`")]
    assert rows == ["| `pe_ghz` | 2.8 | 2.4 | 2.4 | A1, A2, A3 |"]


def test_an_assumption_has_three_values_on_the_page():
    page = machine_page.render()
    assert "| `pe_gap_cycles` | 7 / 16 / 27 | 7 / 16 / 27 | 7 / 16 / 27 | KO 7, XG" in page


def exception_classes():
    """(package, class) of every error and warning, told by its name and what it derives from."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in nodes(path):
            if isinstance(node, ast.ClassDef) and re.search(r"(Error|Warning)$", node.name):
                bases = [ast.unparse(base) for base in node.bases]
                if any(re.search(r"(Error|Warning|Exception)$", base) for base in bases):
                    yield path.relative_to(ROOT / "src").parts[0], node.name


def test_every_exception_is_on_the_page_of_errors():
    page = DOCS / "reference" / "errors.md"
    sections = re.split(r"^## Of ", prose(page), flags=re.MULTILINE)[1:]
    on_page = {
        (section.split("\n")[0], re.sub(r" \(.*\)", "", heading))
        for section in sections
        for heading in re.findall(r"^### (.*)$", section, re.MULTILINE)
    }
    assert on_page == set(exception_classes())


def api_names():
    page = (DOCS / "reference" / "python-api.md").read_text()
    return re.findall(r"`((?:nkisim|trnconv)(?:\.\w+)+)`", page)


def resolve(dotted):
    """The object of a dotted name, importing as far as there are modules."""
    parts = dotted.split(".")
    found = importlib.import_module(parts[0])
    for depth, part in enumerate(parts[1:], start=2):
        if not hasattr(found, part):
            importlib.import_module(".".join(parts[:depth]))
        found = getattr(found, part)
    return found


def with_torch(dotted):
    return dotted.startswith(("trnconv.pytorch", "trnconv.parallel"))


def test_names_of_the_api_page_exist():
    named = [one for one in api_names() if not with_torch(one)]
    assert len(named) > 30
    assert [one for one in named if resolve(one) is None] == []


@pytest.mark.torch
def test_names_of_the_api_page_that_need_torch_exist():
    assert all(resolve(one) is not None for one in filter(with_torch, api_names()))


def test_the_api_page_has_all_of_trnconv_and_only_public_names_of_nkisim():
    import nkisim
    import trnconv

    public = {f"trnconv.{one}" for one in trnconv.__all__ if not one.startswith("__")}
    assert public <= set(api_names())
    named = {one for one in api_names() if one.startswith("nkisim.") and one.count(".") == 1}
    assert named <= {f"nkisim.{one}" for one in nkisim.__all__}


def test_the_image_to_build_on_is_the_one_the_page_speaks_of():
    (image,) = re.findall(r"^ARG BASE=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    repository, tag = image.split(":")
    page = (DOCS / "guides" / "on-a-device.md").read_text()
    assert f"{repository.removeprefix('public.ecr.aws/neuron/')}:{tag}" in page


# The built site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert built.returncode == 0, built.stderr
    return folder


class Loaded(HTMLParser):
    """Everything that a browser fetches with a page."""

    def __init__(self):
        super().__init__()
        self.addresses = []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag in {"script", "img", "iframe", "source"} and "src" in given:
            self.addresses.append(given["src"])
        if tag == "link" and given.get("rel") not in {"next", "prev", "canonical"}:
            self.addresses.append(given["href"])


@pytest.mark.docs
@pytest.mark.site
def test_pages_load_nothing_from_elsewhere(site):
    for page in site.rglob("*.html"):
        loaded = Loaded()
        loaded.feed(page.read_text())
        assert [one for one in loaded.addresses if one.startswith(("http", "//"))] == []


@pytest.mark.docs
@pytest.mark.site
def test_every_page_of_the_navigation_is_built(site):
    listed = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1]
    pages = [Path(path) for path in re.findall(r": (\S+\.md)$", listed, re.MULTILINE)]
    assert [page for page in pages if not (site / page.with_suffix(".html")).is_file()] == []


@pytest.mark.docs
@pytest.mark.site
def test_links_to_the_root_are_turned_to_the_site(site):
    assert 'href="about/architecture.html"' in (site / "index.html").read_text()
