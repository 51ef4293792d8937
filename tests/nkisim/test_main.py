"""`python -m nkisim`: its commands reach what they name."""

import subprocess
import sys

import pytest

from nkisim import bench
from nkisim.__main__ import main


def test_lint_takes_files_and_gives_the_exit_code_of_the_report(tmp_path, capsys):
    kernel = tmp_path / "kernels.py"
    kernel.write_text("import nki\n\n\n@nki.jit\ndef kernel(x):\n    return x\n")
    assert main(["lint", str(kernel)]) == 0
    kernel.write_text("import nki\n\n\n@nki.jit\ndef kernel(x):\n    del x\n")
    assert main(["lint", str(kernel), "--nki", "0.6"]) == 1
    assert "kernels.py" in capsys.readouterr().out


@pytest.mark.parametrize("million", [True, False])
def test_bench_passes_its_option_on(million, monkeypatch):
    asked = []
    monkeypatch.setattr(bench, "main", lambda *, million: asked.append(million) or 3)
    assert main(["bench", "--million"] if million else ["bench"]) == 3
    assert asked == [million]


@pytest.mark.parametrize("arguments", [[], ["unknown"], ["surface", "extra"]])
def test_anything_else_is_a_usage_error(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "surface" in capsys.readouterr().err


def test_help_lists_the_commands(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = capsys.readouterr().out
    assert all(command in listed for command in ("surface", "lint", "bench"))


def test_a_reader_that_leaves_ends_it_quietly():
    command = [sys.executable, "-m", "nkisim", "trace", "--example", "matmul", "--limit", "100000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as ran:
        ran.stdout.readline()
        ran.stdout.close()
        assert ran.stderr.read() == b""
    assert ran.returncode == 1
