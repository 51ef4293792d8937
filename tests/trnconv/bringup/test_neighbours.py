"""The probe of point to point, on two processes over loopback; and what follows from it."""

import os
import socket
import subprocess
import sys

import pytest

pytest.importorskip("torch")

from trnconv.host.record import HostRecord, write_host
from trnconv.parallel import comm
from trnconv.parallel.traffic import ExchangeKind
from yardstick import limit_s

pytestmark = pytest.mark.torch


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def test_two_processes_exchange_and_name_the_workaround():
    around = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    command = [sys.executable, "-m", "trnconv.bringup.neighbours", "gloo"]
    path = os.pathsep.join(entry for entry in sys.path if entry)
    ranks = [
        subprocess.Popen(
            command,
            env={**os.environ, **around, "RANK": str(rank), "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=limit_s(120))[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    assert all("works: trnconv bringup --apply point-to-point" in words for words in said)


@pytest.mark.parametrize(
    ("backend", "workarounds", "exchange"),
    [
        ("gloo", (), ExchangeKind.permute),
        ("neuron", (), ExchangeKind.all_gather),
        ("neuron", ("point-to-point",), ExchangeKind.permute),
    ],
)
def test_rows_go_as_the_probe_found(backend, workarounds, exchange, monkeypatch, tmp_path):
    monkeypatch.setenv("TRNCONV_HOST", str(tmp_path / "host.json"))
    write_host(HostRecord("here").with_workarounds(*workarounds))
    monkeypatch.setattr(comm.dist, "get_backend", lambda _group: backend)
    assert comm.exchange_kind(None) is exchange
