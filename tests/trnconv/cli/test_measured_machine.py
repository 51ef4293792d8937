"""Commands on a machine whose constants were measured, with a workaround behind its file."""

import json

import pytest

from repetition import few


@pytest.fixture
def machine(tmp_path):
    constants = {"pe_ghz": {"value": 1.92}, "dma_bytes_per_ns": {"value": 27.6}}
    said = {"machine": "trn2", "host": "a-host", "sdk": "2.33", "date": "2026-11-16"}
    path = tmp_path / "machine-trn2-measured.json"
    path.write_text(json.dumps({**said, "constants": constants}))
    return str(path)


CITED = "2 of them measured on a-host, SDK 2.33, 2026-11-16"


@few(1)
@pytest.mark.parametrize(
    ("command", "workaround"),
    [("explain", "+fence"), ("plan", ""), ("time", ""), ("report", "+fence")],
)
def test_a_layer_on_it_cites_it_and_says_that_the_time_is_modelled(
    command, workaround, machine, tmp_path, run
):
    out = ("-o", str(tmp_path / "page.html")) if command == "report" else ()
    ran = run(command, "wan_pointwise_384", "--machine", f"{machine}{workaround}", *out)
    assert ran.code == 0, ran.err
    assert CITED in ran.out
    assert "the time is modelled" in ran.out
    assert "nothing was measured" not in ran.out
    assert ("+fence" in ran.out) is bool(workaround)
    if out:
        page = (tmp_path / "page.html").read_text(encoding="utf-8")
        assert CITED in page
        assert "no time here was measured on a device" in page


@pytest.mark.contact
def test_a_model_on_it_is_planned_for_it(machine, run):
    """Prices are worked out in other processes, too: they have to know the machine."""
    ran = run("plan", "--model", "sdxl", "--machine", machine, "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["machine"].startswith("trn2@measured-")
