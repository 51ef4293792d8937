"""`python -m benchmarks errors`: clips that models take, rows that are kept, bars by name."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import errors
from benchmarks.__main__ import main
from trnconv.models import models
from trnconv.models.registry import latent_size

ROOT = Path(__file__).parents[2]


def error(model="taesd", *, ours=1.0, accuracy="bf16", outputs=10_000):
    how = {"size": "64x96x1", "outputs": outputs, "calls": 9, "fast_calls": 2, "left_to_torch": 0}
    return errors.ModelError(model, "decode", accuracy, 0.01 * ours, 0.01, **how)


@pytest.mark.parametrize("entry", models(), ids=lambda entry: entry.name)
def test_every_model_takes_its_small_clip(entry):
    size = errors.small_clip(entry)
    latent = latent_size(entry, size)
    assert latent.height * latent.width >= 2
    assert (size.frames > 1) == (entry.frames.step > 1)


def test_a_ratio_is_decibels_and_has_a_spread():
    row = error(ours=10 ** (1 / 20))
    assert row.lost_db == pytest.approx(1.0)
    assert row.spread == pytest.approx(row.ratio / 100)
    assert not row.is_within
    assert error(ours=1.011).is_within
    assert not error(ours=1.015).is_within  # 0.13 dB


def test_rows_of_other_runs_stay(tmp_path):
    file = tmp_path / "errors.json"
    errors.store(file, [error("taesd"), error("wan2.1"), error("taesd", ours=2.0)])
    assert [row.model for row in errors.stored_errors(file)] == ["wan2.1", "taesd"]
    assert errors.stored_errors(file)[1].ratio == pytest.approx(2.0)
    assert errors.stored_errors(tmp_path / "none.json") == []


def test_runs_beyond_the_bar_are_named():
    rows = [error("wan2.1"), error("taesd", ours=1.1), error("taesd", ours=1.1, accuracy="fast")]
    assert errors.last_lines(rows) == [
        "at most 1.02 and 0.1 dB at accuracy bf16: 1/2; not taesd decode",
        "at most 1.02 and 0.1 dB at accuracy fast: 0/1; not taesd decode",
    ]


def test_stored_rows_are_printed_without_a_run(capsys, tmp_path):
    file = tmp_path / "errors.json"
    errors.store(file, [error("taesd"), error("wan2.1")])
    assert main(["errors", "--stored", "--model", "taesd", "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "taesd" in printed
    assert "wan2.1" not in printed


@pytest.mark.diffusers
def test_a_model_at_full_width_has_fast_convolutions(capsys, tmp_path):
    file = tmp_path / "errors.json"
    asked = ["--model", "taesd", "--phase", "decode", "--accuracy", "bf16"]
    assert main(["errors", *asked, "--json", str(file)]) == 0
    (row,) = json.loads(file.read_text())["models"]
    assert row["outputs"] == 3 * 64 * 96
    assert row["left_to_torch"] == 0
    assert row["calls"] == 35
    assert "accuracy bf16: " in capsys.readouterr().out


def test_the_page_has_the_stored_rows():
    page = ROOT / "docs" / "reference" / "accuracy.md"
    lines = page.read_text(encoding="utf-8").splitlines()
    stored = errors.stored_errors(errors.STORED)
    made = [*errors.page_lines(stored), *errors.seed_lines(stored)]
    assert [line for line in made if line not in lines] == []


def test_a_line_of_the_page_has_both_accuracies():
    rows = [error("taesd"), error("taesd", ours=1.1, accuracy="fast")]
    assert errors.page_lines(rows)[-1] == (
        "| taesd | decode | 64x96x1 | 10000 | 0.01000 | 1.000 | 1.100 | 0.010 | 2, 2 of 9 |"
    )


def test_several_seeds_have_a_mean_and_a_deviation():
    first = error("taesd", ours=1.1)
    rows = [first, replace(first, seed=1, ours=0.009), replace(first, reduced=True), error("taef1")]
    assert errors.seed_lines(rows)[2:] == [
        "| taesd | decode | 64x96x1 | 2 | 1.000 | 0.100 | 0.141 | 0.900 | 1.100 |"
    ]
    assert errors.seed_lines([replace(first, accuracy="fast", seed=seed) for seed in (0, 1)]) == (
        errors.seed_lines([])
    )


def test_runs_that_upsample_before_are_rows_of_their_own(tmp_path):
    file = tmp_path / "errors.json"
    rows = [error("taesd"), replace(error("taesd", ours=0.9), folded=False)]
    errors.store(file, rows)
    assert errors.stored_errors(file) == rows
    assert rows[1].clip == "64x96x1, upsampled before"
    both = [*rows, error("taesd", accuracy="fast")]
    assert len(errors.page_lines(both)) == 3
    assert "1.000" in errors.page_lines(both)[-1]


def test_the_page_names_what_was_not_run():
    missing = errors.not_run(errors.stored_errors(errors.STORED))
    page = (ROOT / "docs" / "reference" / "accuracy.md").read_text(encoding="utf-8")
    listed = [line for line in page.splitlines() if line.startswith("Not run yet:")]
    assert listed == ([f"Not run yet: `{'`, `'.join(missing)}`."] if missing else [])


def test_a_model_is_run_if_all_of_its_phases_are():
    both = [error("taesd", accuracy=accuracy) for accuracy in ("bf16", "fast")]
    assert "taesd" in errors.not_run(both)
    encodes = [replace(row, phase="encode") for row in both]
    assert "taesd" not in errors.not_run([*both, *encodes])
    assert len(errors.not_run([])) == len(models())
