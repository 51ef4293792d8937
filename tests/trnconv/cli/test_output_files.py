"""Files of commands: refused before the work, whole or absent after it."""

import os
import stat
from pathlib import Path

import pytest

from trnconv.cli.output_files import file_to_write
from trnconv.errors import TrnconvError


def test_what_is_written_is_there_and_nothing_else(tmp_path):
    with file_to_write(tmp_path / "page.html") as write:
        write("über")
        write(" all")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == "über all"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize("below", ["no/such/page.html", "file/page.html", "", "."])
def test_what_cannot_be_written_is_refused_on_entry(tmp_path, below):
    (tmp_path / "file").write_text("plain")
    began = False
    with (
        pytest.raises(TrnconvError, match="it cannot be written"),
        file_to_write(tmp_path / below),
    ):
        began = True
    assert not began


def test_after_a_failure_the_old_file_is_as_it_was(tmp_path):
    path = tmp_path / "plans.json"
    path.write_text("old")

    def fail():
        with file_to_write(path) as write:
            write("half of it")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["plans.json"]


def test_a_device_is_written_and_stays_one():
    with file_to_write(Path(os.devnull)) as write:
        write("text")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_said():
    full = Path("/dev/full")
    with pytest.raises(TrnconvError, match="No space left"), file_to_write(full) as write:
        write("text")


def test_without_a_path_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with file_to_write(None) as write:
        write("text")
    assert list(tmp_path.iterdir()) == []
