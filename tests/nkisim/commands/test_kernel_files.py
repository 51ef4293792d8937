"""`python -m nkisim run | time | trace` on files of the user's own."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from nkisim.__main__ import main
from yardstick import limit_s

SRC = Path(__file__).parents[3] / "src"
KERNELS = """import nki
import nki.isa as nisa
import nki.language as nl

WIDTH = 4


@nki.jit
def scaled(x, factor, dtype=nl.float32):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((rows, columns), dtype=x.dtype)
    nisa.dma_copy(tile, x)  # line 13
    result = nl.ndarray((rows, columns), dtype=dtype)
    nisa.tensor_scalar(result, tile, nl.multiply, factor)
    nisa.dma_copy(out, result)
    return out


@nki.jit
def broken(x):
    sums = nl.ndarray((128, 64), nl.float32)
    nisa.nc_matmul(sums, sums, sums)  # line 23
    return x


@nki.jit
def raising(x):
    return {}["nothing"]


def plain(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    if nl.program_id(0) == 0:
        nisa.dma_copy(out, x)
    return out
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A file of kernels, in the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)
    yield path
    for name in [name for name in sys.modules if name.startswith("kernels")]:
        del sys.modules[name]


def test_run_says_what_a_kernel_takes_returns_and_uses(file, capsys):
    assert main(["run", f"{file}:scaled", "--arg", "x=8x16:float32", "--arg", "factor=2.0"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "scaled on trn2, 1 core, values"
    assert printed[1:3] == ["takes    x = float32 [8, 16], random", "takes    factor = 2.0"]
    assert printed[3].startswith("returns  float32 [8, 16]: -")
    assert printed[4].startswith("program  3 instructions, 3 executed; 128 of 212,984 SBUF bytes")


def test_arrays_come_from_files_and_results_go_there(file, capsys):
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.save("x.npy", values)
    words = ["--arg", "x=x.npy", "--arg", "factor=3", "--arg", "dtype=nl.bfloat16"]
    assert main(["run", f"{file}:scaled", *words, "--save", "out.npz"]) == 0
    assert "takes    x = float32 [3, 4]\n" in capsys.readouterr().out
    np.testing.assert_array_equal(np.load("out.npz")["arr_0"].view(np.uint16).shape, (3, 4))
    assert main(["run", f"{file}:scaled", *words[:4], "--save", "wide.npz"]) == 0
    np.testing.assert_array_equal(np.load("wide.npz")["arr_0"], 3 * values)


def test_random_arrays_are_of_their_seed(file, capsys):
    def printed(*words):
        arguments = ["--arg", "x=8x16:float32", "--arg", "factor=1.0"]
        assert main(["run", f"{file}:scaled", *arguments, *words]) == 0
        return capsys.readouterr().out

    assert printed() == printed("--seed", "0") != printed("--seed", "1")


def test_shapes_alone_can_be_run(file, capsys):
    words = ["--arg", "x=128x4096:bfloat16", "--arg", "factor=1.0", "--shape-only"]
    assert main(["run", f"{file}:scaled", *words, "--machine", "trn1"]) == 0
    printed = capsys.readouterr().out
    assert "scaled on trn1, 1 core, shapes only" in printed
    assert "returns  float32 [128, 4096]\n" in printed


def test_what_was_never_written_is_listed_on_request(file, capsys):
    file.write_text(KERNELS.replace("nisa.dma_copy(tile, x)", "nisa.dma_copy(tile[0:4], x[0:4])"))
    words = ["--arg", "x=8x16:float32", "--arg", "factor=2.0", "--inspect"]
    assert main(["run", f"{file}:scaled", *words]) == 0
    printed = capsys.readouterr().out
    assert "64 of 128 values are NaN or infinite" in printed
    unset = (
        "unset    tensor_scalar (instruction 1, kernels.py:15) reads 256 of 512 bytes of 'sbuf_1'"
    )
    assert unset in printed
    assert "first    tensor_scalar (instruction 1, kernels.py:15) writes nan to 'sbuf_2'" in printed


def test_two_cores_and_undecorated_functions(file, capsys):
    assert main(["run", f"{file}:plain", "--arg", "x=8x16:int32", "--lnc", "2"]) == 0
    printed = capsys.readouterr().out
    assert "plain on trn2, 2 cores, values" in printed
    assert "core 0   1 instructions" in printed
    assert "core 1   0 instructions" in printed


def test_a_broken_rule_ends_with_1_and_the_line(file, capsys):
    assert main(["run", f"{file}:broken", "--arg", "x=4x4:float32"]) == 1
    message = capsys.readouterr().err
    assert message.startswith("run: nc_matmul: dst lives in sbuf\n")
    assert "at:     kernels.py:23, in broken" in message


def test_an_error_of_the_file_itself_shows_where(file, capsys):
    assert main(["run", f"{file}:raising", "--arg", "x=4x4:float32"]) == 2
    message = capsys.readouterr().err
    assert 'kernels.py", line 29, in raising' in message
    assert "nkisim" not in message.partition("KeyError")[0].partition("raising")[2]


MISTAKES = [
    (["kernels.py"], "has 3 kernels: broken, raising, scaled", "kernels.py:broken"),
    (["kernels.py:scale"], "no kernel 'scale'", "did you mean scaled?"),
    (["kernels.py:WIDTH"], "no kernel 'WIDTH'", "kernels are broken, raising, scaled"),
    (["missing.py"], "missing.py is not a file", "check the path"),
    (["kernels.py:scaled"], "no value for x, factor", "--arg x=VALUE"),
    (["kernels.py:scaled", "--arg", "y=3"], "--arg y=3", "parameters are x, factor, dtype"),
    (["kernels.py:scaled", "--arg", "x"], "--arg x", "NAME=VALUE"),
    (["kernels.py:scaled", "--arg", "x=8x16:float99"], "x=8x16:float99", "did you mean float"),
    (["kernels.py:scaled", "--arg", "x=some.npy"], "x=some.npy", "not there"),
    (["kernels.py:scaled", "--arg", "dtype=nl.float31"], "nl.float31", "did you mean float32"),
    (["kernels.py:scaled", "--arg", "factor=two"], "factor=two", "quote strings"),
    ([], "without a kernel", "FILE --arg"),
    (["kernels.py", "--example", "matmul"], "two kernels", "one of FILE[:kernel] and"),
]


@pytest.mark.parametrize(("words", "what", "remedy"), MISTAKES)
@pytest.mark.parametrize("command", ["run", "time", "trace"])
@pytest.mark.usefixtures("file")
def test_mistakes_on_the_command_line_end_with_2_and_a_remedy(command, words, what, remedy, capsys):
    assert main([command, *words]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"{command}: ")
    assert what in message
    assert remedy in message


def test_a_file_without_kernels_says_so(file, capsys):
    file.write_text("import nki\n\n\ndef helper(x):\n    return x\n")
    assert main(["time", str(file)]) == 2
    assert "time: no kernels here: " in capsys.readouterr().err


def test_a_file_of_a_package_is_imported_as_a_part_of_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    package = tmp_path / "kernels_of_mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "sizes.py").write_text("SIDE = 16\n")
    text = KERNELS.replace("WIDTH = 4", "from .sizes import SIDE")
    (package / "first.py").write_text(text)
    words = ["--arg", "x=8x16:float32", "--arg", "factor=1.0"]
    assert main(["run", f"{package / 'first.py'}:scaled", *words]) == 0
    assert "scaled on trn2" in capsys.readouterr().out


def test_time_reports_lines_and_variables(file, capsys):
    names = {kind: Path(f"out.{kind}") for kind in ("json", "svg", "perfetto")}
    options = [word for kind, name in names.items() for word in (f"--{kind}", str(name))]
    words = ["--arg", "x=128x2048:float32", "--arg", "factor=2.0"]
    assert main(["time", f"{file}:scaled", *words, *options]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("scaled: modelled, trn2, constants ")
    assert "tensor_scalar #1 (result) for dma_copy #0 (tile)" in printed
    assert "kernels.py:15 for kernels.py:13: nisa.tensor_scalar(result, tile" in printed
    assert max(len(line) for line in printed.splitlines()) <= 100
    lines = json.loads(names["json"].read_text())["lines"]
    assert {(one["line"], one["lane"]) for one in lines} == {
        (13, "dma loads"),
        (15, "vector"),
        (16, "dma stores"),
    }
    assert all(one["instructions"] == 1 and one["file"] == str(file) for one in lines)
    drawn = "".join(ET.parse(names["svg"]).getroot().itertext())  # noqa: S314 (our own)
    assert "kernels.py:13: nisa.dma_copy(tile, x)  # line 13" in drawn
    assert "kernels.py:15: vector, " in drawn
    events = json.loads(names["perfetto"].read_text())["traceEvents"]
    (scale,) = [one["args"] for one in events if one.get("name") == "tensor_scalar"]
    assert scale["line"] == "kernels.py:15"
    assert scale["function"] == "scaled"
    assert scale["writes"] == ["result[128, 2048] float32 (sbuf_2)"]
    assert scale["reads"] == ["tile[128, 2048] float32 (sbuf_1)"]
    assert scale["waited_for"] == "dma_copy #0 (tile) on dma loads, kernels.py:13"


def test_the_busy_time_of_lines_adds_up_to_that_of_their_engine(file, capsys):
    words = ["--arg", "x=128x2048:float32", "--arg", "factor=2.0", "--json", "out.json"]
    assert main(["time", f"{file}:scaled", *words]) == 0
    capsys.readouterr()
    report = json.loads(Path("out.json").read_text())
    (vector,) = [one for one in report["engines"] if one["name"] == "vector"]
    total = sum(one["occupied_ns"] for one in report["lines"] if one["lane"] == "vector")
    assert total == pytest.approx(vector["busy_ns"])


def test_both_cores_are_timed(file, capsys):
    words = ["--arg", "x=128x512:float32", "--lnc", "2", "--json", "out.json"]
    assert main(["time", f"{file}:plain", *words]) == 0
    printed = capsys.readouterr().out
    assert "plain, core 0: modelled" in printed
    assert "plain, core 1: modelled" in printed
    assert json.loads(Path("out.core1.json").read_text())["static_instructions"] == 0


def test_trace_lists_instructions_with_lines_and_variables(file, capsys):
    words = ["--arg", "x=128x2048:float32", "--arg", "factor=2.0"]
    assert main(["trace", f"{file}:scaled", *words, "--limit", "2", "--json", "all.json"]) == 0
    head, first, second, more = capsys.readouterr().out.splitlines()
    assert head == "scaled on trn2: 3 instructions, 3 executed"
    assert first.split()[:3] == ["0", "kernels.py:13", "dma"]
    assert first.endswith("dma_copy: tile[128, 2048] float32 (sbuf_1) <- x[128, 2048] float32")
    assert second.split()[:3] == ["1", "kernels.py:15", "vector"]
    assert more == "... and 1 more (--limit 3, or --json FILE)"
    records = json.loads(Path("all.json").read_text())
    assert [one["line"] for one in records] == [13, 15, 16]
    assert main(["trace", f"{file}:scaled", *words, "--line", "16"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_trace_shows_loops(file, capsys):
    file.write_text(
        KERNELS
        + "\n\n@nki.jit\ndef looping(x):\n    tile = nl.ndarray(x.shape, x.dtype)\n"
        + "    def body(i):\n        nisa.memset(tile, 0.0)\n    nl.fori_loop(0, 7, body)\n"
    )
    assert main(["trace", f"{file}:looping", "--arg", "x=8x8:float32"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "looping on trn2: 1 instructions, 7 executed"
    assert printed[1].strip() == "loop 0, 7 times:"


def test_an_instruction_is_drawn(file, capsys):
    words = ["--arg", "x=128x2048:float32", "--arg", "factor=2.0", "--picture", "1", "one.svg"]
    assert main(["trace", f"{file}:scaled", *words]) == 0
    assert "instruction 1 drawn in one.svg" in capsys.readouterr().out
    drawn = "".join(ET.parse("one.svg").getroot().itertext())  # noqa: S314 (our own)
    assert "tensor_scalar, instruction 1, on vector" in drawn
    assert "kernels.py:15, in scaled:" in drawn
    assert "writes result (sbuf_2)[128, 2048] float32, of [128, 2048] in sbuf" in drawn
    words[-2] = "77"
    assert main(["trace", f"{file}:scaled", *words]) == 2
    assert "instructions are 0..2" in capsys.readouterr().err


def test_a_command_in_a_process_of_its_own(file):
    words = ["run", "kernels.py:broken", "--arg", "x=4x4:float32"]
    ran = subprocess.run(
        [sys.executable, "-m", "nkisim", *words],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        cwd=file.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=limit_s(60),
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.splitlines()[-2:] == [
        "  at:     kernels.py:23, in broken",
        "          nisa.nc_matmul(sums, sums, sums)  # line 23",
    ]
