"""Pictures of the documentation that are made from code: `python -m manual pictures`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from manual import array_picture, block_picture, roofline_picture
from nkisim.machine import TRN2, Reading
from nkisim.timing.report import svg_report
from trnconv.geometry import conv_shape
from trnconv.problem.conv_problem import ConvProblem
from trnconv.report.schedules import time_layer

DOCS = Path(__file__).parents[1] / "docs"
IMAGES = DOCS / "images"
COOKBOOK = DOCS / "cookbook"
FAST = {"direct": "direct", "fast": "winograd"}  # the algorithm of each
GALLERY = {
    "rooflines": roofline_picture.draw,
    "residual-block": block_picture.residual_block,
    "loop-drain": block_picture.loop_drain,
    "two-cores": lambda: block_picture.two_cores(COOKBOOK / "two-cores.md"),
    "array": array_picture.draw,
}
_FILE = re.compile(r'^```python title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ python (-m nkisim time .* --svg (\S+))$", re.MULTILINE)


def draw_page(page: Path, images: Path) -> list[Path]:
    """Run the commands of a page that draw, on the files that it shows; what was written."""
    text = page.read_text(encoding="utf-8")
    drawn = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        for file, source in _FILE.findall(text):
            (folder / file).write_text(source, encoding="utf-8")
        for words, picture in _COMMAND.findall(text):
            command = [sys.executable, *words.split()]
            subprocess.run(command, cwd=folder, env=_environment(), check=True, capture_output=True)  # noqa: S603 (a page of ours)
            (images / picture).write_bytes((folder / picture).read_bytes())
            drawn.append(images / picture)
    return drawn


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(DOCS.parent / "src")}


def draw_all() -> list[Path]:
    """Every picture; what was written."""
    pages = sorted(COOKBOOK.glob("*.md"))
    drawn = [file for page in pages for file in draw_page(page, IMAGES / "cookbook")]
    fast = [draw_fast(name, algorithm) for name, algorithm in FAST.items()]
    return [*drawn, *fast, *(draw_gallery(name) for name in GALLERY)]


def draw_fast(name: str, algorithm: str) -> Path:
    """The timeline of a layer in one algorithm, for the page on fast convolutions."""
    shape = conv_shape((1, 128, 6, 12, 320), (128, 128, 3, 3, 3), padding=(0, 1, 1))
    problem = ConvProblem(shape, TRN2, algorithms=(algorithm,))
    timed = time_layer(problem, (Reading.default,), cores=1).longest
    file = IMAGES / f"fast-{name}.svg"
    drawn = svg_report(timed.timelines[Reading.default], timed.taken.plan.family)
    file.write_text(drawn + "\n", encoding="utf-8")
    return file


def draw_gallery(name: str) -> Path:
    """One picture of the gallery; the file written."""
    file = IMAGES / "gallery" / f"{name}.svg"
    file.write_text(GALLERY[name](), encoding="utf-8")
    return file
