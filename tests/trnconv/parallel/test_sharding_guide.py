"""The script of the guide runs on two ranks, and prints what the page shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.distributed
pytest.importorskip("torch")

from test_docs import python_blocks

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs" / "guides" / "sharding.md"


def test_the_script_of_the_guide(tmp_path):
    page = re.sub(r"^```py$", "```python", GUIDE.read_text(), flags=re.MULTILINE)
    (block,) = python_blocks(page)
    script = tmp_path / "decode.py"
    script.write_text("\n".join(block.lines) + "\n")
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node",
            "2",
            "--standalone",
            script,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "GLOO_SOCKET_IFNAME": "lo"},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.rstrip() == block.printed
