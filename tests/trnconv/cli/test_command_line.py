"""The command line: quick to start, words instead of tracebacks, JSON on request."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from repetition import few
from yardstick import limit_s

ROOT = Path(__file__).parents[3]


def run(*arguments, program=("-m", "trnconv")):
    return subprocess.run(
        [sys.executable, "-W", "error", *program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=limit_s(300),
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "100", "NO_COLOR": "1"},
    )


def test_help_lists_the_commands():
    result = run("--help")
    assert result.returncode == 0
    assert {"encode", "capacity"} <= set(result.stdout.split())


def test_help_loads_nothing_that_is_slow():
    program = """
import sys
from trnconv.cli import app
try:
    app(["--help"])
except SystemExit:
    slow = {"numpy", "torch", "nkisim", "ray", "av", "diffusers", "fsspec"}
    print("loaded:", sorted(slow & set(sys.modules)))
"""
    result = run(program=("-c", program))
    assert result.stdout.endswith("loaded: []\n"), result.stderr


@few(1)
@pytest.mark.parametrize("command", ["encode", "capacity"])
def test_every_command_has_help_and_answers_in_json(command):
    result = run(command, "--help")
    assert result.returncode == 0
    assert "--json" in result.stdout


ENCODE = "encode videos --out x --model wan2.1 --size 64x64 --frames 9".split()
CAPACITY = "capacity --clips 1e6 --seconds 5 --size 720x1280".split()


@few(2)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (ENCODE, "encode without weights"),
        ([*ENCODE, "--weights", "w", "--random-weights"], "one of them"),
        ([*ENCODE, "--random-weights", "--frames", "8"], "it takes 4n+1 frames"),
        ([*ENCODE, "--random-weights", "--backend", "cuda"], "one of torch, nkisim, neuron"),
        ([*ENCODE, "--random-weights", "--workers", "2"], "they are Ray's"),
        ([*ENCODE[:4], "--model", "none", *ENCODE[6:], "--random-weights"], "not in the registry"),
        ([*CAPACITY, "--instance", "p5"], "There are trn2.48xlarge"),
        ([*CAPACITY, "--model", "none"], "not in the registry"),
        ([*CAPACITY, "--reached", "2"], "a share, at most 1"),
        ([*CAPACITY[:-1], "720p"], "write height x width"),
    ],
)
def test_a_refusal_is_words_on_stderr_and_exit_code_2(arguments, words):
    result = run(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("trnconv: ")
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_an_option_that_does_not_exist_has_exit_code_2_too():
    assert run("capacity", "--clip", "1").returncode == 2


@pytest.mark.diffusers
def test_capacity_is_modelled_and_says_so():
    small = "capacity --clips 1e6 --seconds 1 --size 64x96 --days 2".split()
    answer = json.loads(run(*small, "--json").stdout)
    assert (answer["label"], answer["instances"], answer["clip"]["size"]["frames"]) == (
        "modelled",
        1,
        17,
    )
    assert answer["clips_per_s"] == pytest.approx(1e6 / 2 / 86_400)
    assert answer["assumptions"]["reached"] == 0.5
    assert answer["clip"]["core_s"] > 0
    text = run(*small, "--dollars-per-hour", "10").stdout
    assert "Modelled: trn2" in text
    assert "nothing was measured" in text
    assert "480 dollars" in text
    for name in answer["assumptions"]:
        assert f"--{name.replace('_', '-')}" in text


@pytest.mark.diffusers
def test_capacity_is_what_the_estimate_says():
    from nkisim.machine import TRN2
    from trnconv.models import Size, find
    from trnconv.pytorch.estimate import estimate, run_entry_on_meta

    priced = estimate(run_entry_on_meta(find("wan2.1"), Size("", 17, 64, 96), "encode"), TRN2)
    answer = json.loads(run(*"capacity --clips 1 --seconds 1 --size 64x96 --json".split()).stdout)
    assert answer["clip"]["convolution_s"] == pytest.approx(priced.seconds)
    # Copies go at what 16 DMA engines sustain, 23 bytes a nanosecond each, or half of an HBM stack,
    # on each of two cores.
    rate = 2 * min(16 * 23, 360)
    assert answer["clip"]["copied_s"] == pytest.approx(priced.copied_bytes / rate / 1e9)
    clip = answer["clip"]
    assert clip["core_s"] == pytest.approx(2 * (clip["convolution_s"] + clip["copied_s"]))
    assert answer["assumptions"]["cores_per_clip"] == clip["cores"] == 2


@pytest.mark.diffusers
def test_the_page_on_capacity_shows_what_the_command_prints():
    page = (ROOT / "docs" / "guides" / "capacity.md").read_text()
    command, _, shown = page.partition("$ trnconv ")[2].partition("```")[0].partition("\n")
    printed = run(*command.split()).stdout
    assert [line.rstrip() for line in printed.splitlines()] == shown.splitlines()


WITHOUT_TORCH = "import sys; sys.modules['torch'] = None\n"


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import trnconv.pytorch", "pip install 'trnconv[torch]'"),
        ("import trnconv.pytorch.functional", "pip install 'trnconv[torch]'"),
        (
            f"import runpy; runpy.run_path({str(ROOT / 'examples' / 'decode_wan.py')!r})",
            "pip install 'trnconv[diffusers,plots]'",
        ),
    ],
    ids=["package", "module", "example"],
)
def test_missing_torch_is_said_in_words(program, words):
    result = run(program=("-c", WITHOUT_TORCH + program))
    assert result.returncode == 1
    assert words in result.stderr.splitlines()[-1]


def piped(command):
    """What a shell makes of it: exit code of the last part, and stderr of all."""
    return subprocess.run(
        ["/bin/bash", "-o", "pipefail", "-c", command],
        capture_output=True,
        text=True,
        check=False,
        timeout=limit_s(300),
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )


@pytest.fixture(params=["", "1"], ids=["buffered", "unbuffered"])
def _buffering(request, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", request.param)


@pytest.mark.usefixtures("_buffering")
@pytest.mark.parametrize("answer", ["", "--json", "--csv"])
def test_a_reader_that_leaves_early_is_no_error(answer):
    result = piped(f"{sys.executable} -m trnconv models {answer} | head -n 1")
    assert (len(result.stdout.splitlines()), result.stderr) == (1, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.usefixtures("_buffering")
@pytest.mark.parametrize("answer", ["", "--json", "--csv"])
def test_a_full_disk_is_said_in_words(answer):
    result = piped(f"{sys.executable} -m trnconv layers {answer} > /dev/full")
    assert (result.returncode, result.stderr) == (1, "trnconv: No space left on device.\n")


def test_the_version_is_that_of_the_package():
    import trnconv

    assert run("--version").stdout == f"trnconv {trnconv.__version__}\n"


def test_flags_are_shown_without_a_value():
    shown = run("plan", "--help").stdout
    assert "--json" in shown
    assert "<bool>" not in shown


@pytest.mark.ray
def test_names_of_files_do_not_reach_the_terminal_as_they_are(tmp_path):
    (tmp_path / "a\x1b]0;PWNED\x07\x1b[2Jb.mp4").write_bytes(b"x")
    out = str(tmp_path / "out")
    few = ["--reduced", "--random-weights", "--size", "32x32", "--frames", "5"]
    result = run("encode", str(tmp_path), "--out", out, "--model", "wan2.1", *few)
    assert "set aside: " in result.stdout
    assert "a\\x1b]0;PWNED\\x07\\x1b[2Jb.mp4" in result.stdout
    assert "\x1b" not in result.stdout + result.stderr
