"""docs/predictions.md, and what it is made of."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import nkisim
from nkisim import Spec
from nkisim.machine import CONSTANTS_VERSION, TRN2, Reading
from nkisim.timing import schedule
from trnconv.cases import find
from trnconv.geometry import conv_shape
from validation import __main__ as command
from validation import forecast, forecast_page
from validation.forecast import DESIGN, LIBRARY, OURS, Forecast, read_record, write_record
from validation.library_forecast import CALLS, Call, library_forecasts

ROOT = Path(__file__).parents[2]
KERNEL = '''
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def conv(x_in, times):
    """A kernel of a library: loads, copies, stores."""
    y = nl.ndarray(x_in.shape, dtype=x_in.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x_in.shape, dtype=x_in.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x_in)
    for _ in range(times):
        nisa.tensor_copy(dst=tile, src=tile)
    nisa.dma_copy(dst=y, src=tile)
    return y
'''
CALL = Call(
    module="experimental.toy",
    function="conv",
    shape="128 x 64",
    arguments={"x_in": Spec((128, 64), "bfloat16"), "times": 3},
)


@pytest.fixture
def checkout(tmp_path):
    """A library of one kernel, laid out as nki-library is."""
    folder = tmp_path / "src" / "nkilib_src" / "nkilib" / "experimental"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent, folder.parents[1]):
        (package / "__init__.py").touch()
    (folder / "toy.py").write_text(KERNEL)
    return tmp_path


def test_a_layer_is_forecast_as_the_command_would_time_it():
    name = "wan_from_latent"
    one = forecast._ours(name, find(name).shape, find(name).dtype, TRN2, "")
    program, *asked = forecast.layer_command(name, TRN2).split()
    words = [sys.executable, "-m", program, *asked, "--json"]
    timed = subprocess.run(
        words, capture_output=True, text=True, check=True, cwd=ROOT, env={"PYTHONPATH": "src"}
    )
    answer = json.loads(timed.stdout)
    assert one.recipe == answer["plan"]
    for reading in Reading:
        us = answer["readings"][reading.value]["ns"] / 1e3
        assert getattr(one, f"{reading.value}_us") == pytest.approx(us)


def test_a_shape_in_words():
    shape = conv_shape((2, 16, 3, 8, 9), (4, 16, 1, 3, 3), padding=((0, 0), (2, 0), 1))
    assert forecast.in_words(shape) == "2 x 16 to 4, 1x3x3, input 3x8x9, padding 0 2+0 1"


def test_kernels_of_a_checkout_are_timed_for_each_machine(checkout):
    trn2, trn3 = library_forecasts(checkout, (CALL,))
    assert (trn2.machine, trn3.machine) == ("trn2", "trn3")
    assert trn2.recipe == "conv[1](x_in=128x64, times=3)"
    assert trn2.dtype == "bfloat16"
    namespace: dict = {}
    exec(compile(KERNEL, "<kernel>", "exec"), namespace)  # noqa: S102 (our own text)
    run = nkisim.run(
        namespace["conv"][1], Spec((128, 64), "bfloat16"), 3, machine="trn2", lnc=1, values=False
    )
    alone = schedule(run.trace, TRN2, Reading.default).makespan_ns
    assert trn2.default_us == pytest.approx(alone / 1e3)
    assert trn2.optimistic_us < trn2.default_us < trn2.pessimistic_us


def test_a_kernel_that_is_missing_or_refused_is_named_with_its_reason(checkout):
    absent = replace(CALL, module="experimental.conv3d", function="conv3d")
    wide = replace(CALL, arguments={"x_in": Spec((129, 64), "bfloat16"), "times": 1})
    found = list(library_forecasts(checkout, (absent, wide)))
    assert found[0]["why"] == "the checkout has no module `nkilib_src.nkilib.experimental.conv3d`"
    assert found[1]["why"].startswith("nkisim refuses it: ")
    assert "129" in found[1]["why"]


def test_a_folder_that_is_no_checkout_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="name a checkout of aws-neuron/nki-library"):
        list(library_forecasts(tmp_path, (CALL,)))


def test_the_named_calls_have_a_kernel_each_of_four():
    assert {call.function for call in CALLS} == {
        *("conv1d", "depthwise_conv1d_implicit_gemm", "conv3d", "conv3d_bwd")
    }
    (call,) = [one for one in CALLS if one.function == "conv3d" and "cogvideox" in one.shape]
    assert call.arguments["x_in"].shape == (1, 512, 5, 60, 90)
    assert call.arguments["filters"].shape == (3, 3, 3, 512, 512)
    assert call.arguments["padding"] == (0, 0, 1, 1, 1, 1)


def some(**changes):
    fields = {
        "kernel": "a_layer",
        "shape": "96 to 96",
        "dtype": "bfloat16",
        "machine": "trn2",
        "optimistic_us": 90.0,
        "default_us": 100.0,
        "pessimistic_us": 1200.0,
        "recipe": "direct",
    }
    return Forecast(**{**fields, **changes})


def record_of(**changes):
    return {"date": "2026-11-15", OURS: [some()], DESIGN: [], LIBRARY: [], **changes}


def test_the_page_has_what_it_takes_to_score_us():
    text = forecast_page.render(
        record_of(
            **{LIBRARY: [some(kernel="conv1d", recipe="conv1d[1](x)")], "commit": "d2ad3a5794"},
            not_run=[
                {"kernel": "conv3d", "shape": "s", "machine": machine, "why": "no file"}
                for machine in ("trn2", "trn3")
            ],
        )
    )
    assert f"constants version {CONSTANTS_VERSION}, 2026-11-15" in text
    assert "| a_layer | 96 to 96 | trn2 bfloat16 | 100.0 us | 90.00 us to 1.20 ms |" in text
    assert "at d2ad3a5; one core" in text
    assert "| `conv1d[1](x)` |" in text
    assert "| conv3d | s | trn2, trn3 | no file |" in text
    assert "measured" not in text


def test_a_record_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "forecast.json"
    assert read_record(path) == {}
    record = record_of(commit="d2ad3a5", not_run=[])
    write_record(record, path)
    assert read_record(path) == record


def test_the_page_on_disk_is_what_is_on_record_with_these_constants():
    record = read_record()
    text = command.FORECAST_PAGE.read_text(encoding="utf-8")
    assert text == forecast_page.render(record)
    made = {one.constants for part in (OURS, DESIGN, LIBRARY) for one in record[part]}
    assert made == {CONSTANTS_VERSION}
    assert len(record[OURS]) == 2 * len(forecast.LAYERS) + len(forecast.CUBES)


def test_the_published_baseline_stands_beside_the_same_shapes():
    sides = [side for side, *_ in forecast_page.KNOWN]
    assert sides == list(forecast.CUBES)
    shown = [one.shape for one in read_record()[OURS] if one.dtype == "float16"]
    assert shown == [forecast.in_words(forecast.cube(side)) for side in sides]


def test_the_command_keeps_the_library_without_a_checkout(tmp_path, monkeypatch, capsys):
    written = {}
    known = record_of(**{LIBRARY: [some(kernel="kept")]}, commit="abc")
    monkeypatch.setattr(command, "read_forecast", lambda: dict(known))
    monkeypatch.setattr(command, "write_forecast", written.update)
    monkeypatch.setattr(command, "our_layers", lambda: [some(kernel="new")])
    monkeypatch.setattr(command, "library_design", list)
    monkeypatch.setattr(command, "FORECAST_PAGE", tmp_path / "page.md")
    command.main(["forecast", "--date", "2026-12-01"])
    assert written["date"] == "2026-12-01"
    assert [one.kernel for one in written[OURS]] == ["new"]
    assert [one.kernel for one in written[LIBRARY]] == ["kept"]
    assert re.search(r"^\| kept \|", (tmp_path / "page.md").read_text(), re.MULTILINE)
    assert capsys.readouterr().out == "wrote page.md: 2\n"
