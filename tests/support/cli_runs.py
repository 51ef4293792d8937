"""Run `trnconv` in this process, as a user would without a terminal."""

import json
import sys
from typing import NamedTuple

from trnconv.cli import heartbeat, main

WIDTH = "100"


class Ran(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


def run_trnconv(monkeypatch, capsys, *arguments):
    """Its exit code and what it wrote; no colours, 100 columns, no lines about what takes long."""
    monkeypatch.setattr(heartbeat, "EVERY_S", 3600.0)
    for name, value in (("COLUMNS", WIDTH), ("NO_COLOR", "1"), ("TERM", "dumb")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setattr(sys, "argv", ["trnconv", *arguments])
    code = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code or 0
    captured = capsys.readouterr()
    return Ran(code, captured.out, captured.err)


def answer(ran):
    """What a command wrote as JSON; it must have succeeded in silence."""
    assert (ran.code, ran.err) == (0, "")
    return json.loads(ran.out)
