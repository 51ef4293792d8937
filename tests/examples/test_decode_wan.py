"""examples/decode_wan.py runs, says what it shows, and draws it."""

import importlib.util
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from trnconv.errors import UnsupportedError

pytestmark = pytest.mark.diffusers

SCRIPT = Path(__file__).parents[2] / "examples" / "decode_wan.py"
TINY = ["--latent-frames", "2", "--height", "8", "--width", "16"]
WIDE = "160"  # columns, so that no sentence is broken


@pytest.fixture
def example(monkeypatch):
    monkeypatch.setenv("COLUMNS", WIDE)
    spec = importlib.util.spec_from_file_location("decode_wan", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "decode_wan", module)
    spec.loader.exec_module(module)
    return module


def test_it_decodes_reports_and_estimates(example, capsys):
    example.main([*TINY, "--picture", ""])
    printed = capsys.readouterr().out
    for words in ("random weights, reduced to 8 channels", "Error against torch in float32"):
        assert words in printed
    rows = {row[1].strip(): row[2].strip() for row in table_rows(printed)}
    assert rows["convolutions patched, left to torch"] == "55, 0"
    assert rows["convolutions, one trn2 core"].endswith(" s")
    assert "modelled, not measured" in printed
    assert "Picture" not in printed


def table_rows(printed):
    return [line.split("│") for line in printed.splitlines() if line.count("│") == 3]


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_it_draws_the_frames_and_their_difference(example, tmp_path, suffix, start):
    pytest.importorskip("matplotlib")
    floor = torch.zeros(1, 3, 5, 8, 16)
    ours = floor + 0.25
    outcome = example.Outcome(floor, floor, ours, None, 0.0)
    figure = example._figure()
    example.draw(outcome, figure)
    labels = [axis.get_ylabel() for axis in figure.axes]
    assert [label for label in labels if label] == [
        "torch\nbf16",
        "trnconv\nin nkisim, bf16",
        "difference\nx 4",
    ]
    assert len(figure.axes) == 3 * 5
    brightened = figure.axes[-1].images[0].get_array()
    assert float(brightened.min()) == float(brightened.max()) == 1.0
    picture = tmp_path / f"frames.{suffix}"
    figure.savefig(picture)
    assert picture.read_bytes().startswith(start)


def test_it_refuses_at_once_without_matplotlib(example, monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(example.importlib, "import_module", absent)
    with pytest.raises(UnsupportedError, match=r"pip install 'trnconv\[plots\]'"):
        example.main(TINY)


@pytest.mark.parametrize("wrong", [["--height", "12"], ["--width", "0"], ["--chunk", "0"]], ids=str)
def test_it_refuses_sizes_in_words(example, capsys, wrong):
    with pytest.raises(SystemExit):
        example.main(wrong)
    assert "at least" in capsys.readouterr().err


def test_frames_of_the_picture_are_spread_evenly(example):
    assert example._spread(13) == [0, 3, 6, 9, 12]
    assert example._spread(1) == [0]
    assert example._spread(5) == [0, 1, 2, 3, 4]


def test_equal_frames_need_no_gain(example):
    assert example._gain(torch.zeros(3)) == 1
    assert example._gain(torch.tensor([0.3, -0.01])) == 2
