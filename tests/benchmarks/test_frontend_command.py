"""The command beside the guide on torch's functions says what it should."""

import argparse
import re

import pytest

torch = pytest.importorskip("torch")

from benchmarks import frontend

pytestmark = pytest.mark.torch


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
    assert frontend.main(argparse.Namespace(iterations=1)) == 0
    assert {asked[name] for name in frontend.THREADS} == {"1"}


def test_the_layer_is_of_five_gflop():
    positions = 1 * 53 * 107  # no padding along the depth
    macs = positions * frontend.WEIGHT[0] * frontend.WEIGHT[1] * 27
    assert 2 * macs == pytest.approx(5e9, rel=0.01)


def test_the_limit_is_held(monkeypatch, capsys):
    monkeypatch.setattr(frontend, "alternately", lambda *_: (4.1, 1.0))
    assert frontend.compare(1) == 1
    assert capsys.readouterr().out.endswith("nkisim 4.1 x torch fp32, one thread\n")
