"""Commands run with a cache of their own."""

import pytest

from cli_runs import run_trnconv


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """`run(*arguments)`: what `trnconv` did with them."""
    monkeypatch.setenv("TRNCONV_CACHE_DIR", str(tmp_path / "cache"))
    return lambda *arguments: run_trnconv(monkeypatch, capsys, *arguments)
