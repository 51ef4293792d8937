"""What people install: a wheel and an archive of the source, built here and tried in a clean place.

Needs hatchling, and an index of packages for the base dependencies: `pytest -m dist`.
"""

import subprocess
import sys
import tarfile
import time
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

from doc_pages import agrees, program
from doc_pages import run as run_page
from yardstick import limit_s

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.dist


def build(source, folder):
    """The wheel and the source archive of a source tree."""
    command = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-t",
        "wheel",
        "-t",
        "sdist",
        "-d",
        folder,
    ]
    subprocess.run(command, check=True, cwd=source, capture_output=True)
    (wheel,), (archive,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, archive


def files(top, folder):
    """The files below a folder, named from its top; what tools leave behind does not count."""
    inside = ((path, path.relative_to(top / folder)) for path in (top / folder).rglob("*"))
    return {
        path.relative_to(top).as_posix()
        for path, short in inside
        if path.is_file() and not any(part.startswith((".", "__pyc")) for part in short.parts)
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def wheel_names(built):
    return set(zipfile.ZipFile(built[0]).namelist())


@pytest.fixture(scope="module")
def unpacked(built, tmp_path_factory):
    folder = tmp_path_factory.mktemp("source")
    with tarfile.open(built[1]) as archive:
        archive.extractall(folder, filter="data")
    (top,) = folder.iterdir()
    return top


@pytest.fixture(scope="module")
def clean(built, tmp_path_factory):
    """The Python of an environment with the wheel and what it depends on, and nothing else."""
    folder = tmp_path_factory.mktemp("clean")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", built[0]]
    subprocess.run(install, check=True)
    return python


@pytest.fixture
def empty(tmp_path):
    """The Python of an environment with nothing in it."""
    folder = tmp_path / "empty"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return folder / "bin" / "python"


def run(*command, cwd):
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=cwd, timeout=limit_s(120), env={}
    )


def test_the_wheel_has_the_packages_and_nothing_else(wheel_names):
    outside = {name for name in wheel_names if ".dist-info/" not in name}
    assert outside == files(ROOT / "src", "nkisim") | files(ROOT / "src", "trnconv")


def test_both_packages_are_typed(wheel_names):
    assert {"nkisim/py.typed", "trnconv/py.typed"} <= wheel_names


def test_the_metadata_says_what_the_project_says(built):
    with zipfile.ZipFile(built[0]) as wheel:
        (name,) = (one for one in wheel.namelist() if one.endswith(".dist-info/METADATA"))
        metadata = message_from_string(wheel.read(name).decode())
    base = [one for one in metadata.get_all("Requires-Dist") if "extra ==" not in one]
    assert sorted(one.split(">")[0] for one in base) == ["ml-dtypes", "numpy", "rich", "typer"]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("Project-URL") is None


@pytest.mark.parametrize(
    "folder", ["tests", "docs", "benchmarks", "validation", "manual", "examples", "scripts", ".ci"]
)
def test_the_archive_has_what_its_tests_read(unpacked, folder):
    assert files(unpacked, folder) == files(ROOT, folder)
    assert (unpacked / "mkdocs.yml").is_file()


def test_tests_run_from_the_archive(unpacked):
    quick = ["tests/test_house_rules.py", "tests/test_imports.py", "tests/test_site.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *quick]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=unpacked)
    assert ran.returncode == 0, ran.stdout


def test_a_wheel_of_the_archive_is_the_same_wheel(unpacked, wheel_names, tmp_path):
    wheel, _ = build(unpacked, tmp_path)
    assert set(zipfile.ZipFile(wheel).namelist()) == wheel_names


def test_the_base_dependencies_are_few(clean, tmp_path):
    listed = run(clean, "-m", "pip", "list", "--format=freeze", cwd=tmp_path).stdout
    names = {line.split("==")[0].lower() for line in listed.splitlines()}
    assert {"trnconv", "numpy"} <= names
    assert not names & {"torch", "diffusers", "pytest", "mkdocs", "matplotlib", "ray"}


def test_the_commands_start(clean, tmp_path):
    script = run(clean.parent / "trnconv", "--help", cwd=tmp_path)
    module = run(clean, "-m", "trnconv", "--help", cwd=tmp_path)
    assert (script.returncode, module.returncode) == (0, 0), script.stderr + module.stderr
    assert "capacity" in script.stdout


def test_a_models_latency_is_known_30_seconds_after_pip_install(built, empty, tmp_path):
    begin = time.monotonic()
    pip = (empty, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", built[0])
    subprocess.run(pip, check=True)
    asked = ("plan", "--model", "wan2.1", "--size", "720x1280x81")
    ran = run(empty.parent / "trnconv", *asked, cwd=tmp_path)
    taken = time.monotonic() - begin
    assert "The whole decode: " in ran.stdout, ran.stderr
    assert taken < limit_s(30)


def test_the_three_starts_run_in_an_empty_environment(clean, tmp_path):
    """The wheel is what runs; of the checkout only `manual` is used, which is not installed."""
    page = (ROOT / "docs" / "three-starts.md").read_text()
    shown = program(page)[1]
    printed = run_page(page, tmp_path, python=clean, paths=(ROOT,))
    wrong = [
        (expected, output)
        for expected, output in zip(shown, printed, strict=False)
        if expected is not None and not agrees(expected, output)
    ]
    assert wrong == []


def test_the_simulator_runs(clean, tmp_path):
    ran = run(clean, "-m", "nkisim", "time", "--example", "vector_add", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("vector_add: modelled, trn2")


def test_a_convolution_runs(clean, tmp_path):
    program = """
import numpy as np
import trnconv
y = trnconv.conv1d(np.ones((1, 4, 8), np.float32), np.ones((2, 4, 3), np.float32))
print(y[0, 0])
from trnconv import catalogue, cases, models
print(len(models.models()) > 10)
"""
    ran = run(clean, "-c", program, cwd=tmp_path)
    assert ran.stdout == "[12. 12. 12. 12. 12. 12.]\nTrue\n", ran.stderr


def test_what_needs_an_extra_says_how_to_get_it(clean, tmp_path):
    words = "capacity --clips 1e6 --seconds 5 --size 720x1280".split()
    ran = run(clean, "-m", "trnconv", *words, cwd=tmp_path)
    assert ran.returncode == 2
    assert "pip install 'trnconv[" in ran.stderr
