"""The guide's blocks run, and the command it belongs to says what it should.

They need torch, so the page fences them as ```py, which tests/test_docs.py leaves alone.
"""

import argparse
import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from benchmarks import frontend
from test_docs import python_blocks, run

pytestmark = pytest.mark.torch

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "porting.md"


def test_the_code_of_the_guide_runs_and_prints_what_it_shows(tmp_path):
    page = re.sub(r"^```py$", "```python", GUIDE.read_text(), flags=re.MULTILINE)
    blocks = list(python_blocks(page))
    assert all(block.printed for block in blocks)
    for block, output in zip(blocks, run(blocks, tmp_path), strict=False):
        assert output.rstrip() == block.printed, f"line {block.first_line}"


def test_the_command_times_both_and_ends_with_the_ratio(monkeypatch, capsys):
    monkeypatch.setattr(frontend, "INPUT", (1, 2, 3, 4, 5))
    monkeypatch.setattr(frontend, "WEIGHT", (2, 2, 3, 3, 3))
    frontend.compare(2)
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(r"nkisim \d+\.\d x torch fp32, one thread", last)


def test_the_command_runs_on_one_thread(monkeypatch):
    asked = {}

    def record(command, *, check, env):
        asked.update(env)
        return argparse.Namespace(returncode=0)

    monkeypatch.setattr(frontend.subprocess, "run", record)
    assert frontend.main(argparse.Namespace(turns=1)) == 0
    assert {asked[name] for name in frontend.THREADS} == {"1"}


def test_the_layer_is_of_five_gflop():
    positions = 1 * 53 * 107  # no padding along the depth
    macs = positions * frontend.WEIGHT[0] * frontend.WEIGHT[1] * 27
    assert 2 * macs == pytest.approx(5e9, rel=0.01)


def test_the_limit_is_held(monkeypatch, capsys):
    monkeypatch.setattr(frontend, "in_turns", lambda *_: (4.1, 1.0))
    assert frontend.compare(1) == 1
    assert capsys.readouterr().out.endswith("nkisim 4.1 x torch fp32, one thread\n")
