"""How fast schedules are made, and in how much memory: in a process of its own, on one core.

Processor time is counted, not wall time: the computer may be busy with something else. A slow one
need only be as fast as it is.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from yardstick import slowness

ROOT = Path(__file__).parents[3]
MEBIBYTE = 2**20

PROGRAM = """
import json, resource, sys, time
from nkisim.bench import matmul_kernel
from nkisim.running.host_arrays import Spec
from nkisim.running.kernel import run
from nkisim.machine import Reading
from nkisim.timing import schedule

row_tiles, reading, repeats = int(sys.argv[1]), Reading[sys.argv[2]], int(sys.argv[3])
a_t, b = Spec((64 * 128, row_tiles * 128), "bfloat16"), Spec((64 * 128, 8192), "bfloat16")
done = run(matmul_kernel, a_t, b, 2, machine="trn2", values=False)
seconds = []
for _ in range(repeats):
    begin = time.process_time()
    found = schedule(done.trace, done.machine, reading, memory=done.memory)
    seconds.append(time.process_time() - begin)
    assert found.makespan_ns > 0
unit = 1 if sys.platform == "darwin" else 1024
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
count = found.executed_instructions
print(json.dumps({"count": count, "rate": count / min(seconds), "peak_bytes": peak}))
"""


def scheduled(row_tiles, reading, repeats):
    pytest.importorskip("resource", reason="memory is measured on Unix only")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", PROGRAM, str(row_tiles), reading, str(repeats)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("reading", ["optimistic", "default", "pessimistic"])
def test_30_000_instructions_are_scheduled_in_a_second(reading):
    found = scheduled(row_tiles=32, reading=reading, repeats=3)
    assert found["count"] > 50_000
    assert found["rate"] > 30_000 / slowness()


@pytest.mark.slow
@pytest.mark.parametrize("reading", ["optimistic", "default"])
def test_a_million_instructions_fit_in_2_gb(reading):
    """Trace and schedule together."""
    found = scheduled(row_tiles=640, reading=reading, repeats=1)
    assert found["count"] > 1_000_000
    assert found["peak_bytes"] < 2000 * MEBIBYTE
