"""`trnconv bringup` on a double that fails: it stops, names the workaround, and goes on with it."""

import json

import pytest
from typer.testing import CliRunner

import trnconv.host.vendor
from bringup_climbs import vendor_of
from trnconv.cli import app
from trnconv.errors import TrnconvError


@pytest.fixture
def device(monkeypatch, tmp_path):
    """A host whose device cannot read a PSUM bank that grows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRNCONV_HOST", str(tmp_path / "host.json"))
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    vendor = vendor_of(("growing-bank",), 2)
    monkeypatch.setattr(trnconv.host.vendor, "find_vendor", lambda: vendor)
    return tmp_path


def bringup(*arguments):
    return CliRunner().invoke(app, ["bringup", "--stage", "1", *arguments])


@pytest.mark.slow
def test_it_stops_names_the_workaround_and_goes_on_with_it(device):
    red = bringup()
    assert red.exit_code == 1
    assert "growing-bank            red    run 1: result 0 has" in red.output
    assert "Apply a workaround and go on: trnconv bringup --apply no-growing-banks" in red.output
    found = json.loads((device / "bringup.json").read_text())
    assert (found["stopped_at"], found["workaround"]) == ("growing-bank", "no-growing-banks")
    green = bringup("--apply", "no-growing-banks")
    assert green.exit_code == 0, green.output
    assert "trn2+no-growing-banks, 2 cores a launch" in green.output
    assert "Every check has run." in green.output
    again = json.loads(bringup("--json").stdout)
    assert again["stamp"]["workarounds"] == ["no-growing-banks"]
    assert {one["state"] for one in again["checks"]} == {"green", "noted", "off"}


def test_what_is_asked_wrongly_is_refused_in_words(device):
    for arguments, words in (
        (("--apply", "luck"), "a workaround 'luck'"),
        (("--on", "moon"), "--on moon: one of device, nkisim"),
        (("--stage", "9"), "stage 9 of the bring-up: there are 0, 1, 2, 3, 4"),
    ):
        refused = bringup(*arguments).exception
        assert isinstance(refused, TrnconvError)
        assert words in str(refused)


@pytest.mark.slow
def test_doctor_shows_machine_and_workarounds(device):
    bringup("--apply", "fence", "--on", "nkisim")
    said = CliRunner().invoke(app, ["doctor"]).output
    assert "machine     trn2 (NEURON_PLATFORM_TARGET_OVERRIDE says so), logical cores of 2" in said
    assert "workaround  fence: after its loops, a kernel copies its output onto itself" in said


def test_explain_shows_workarounds_in_words(device):
    said = CliRunner().invoke(app, ["explain", "c_in_3", "--machine", "trn2+no-loops"]).output
    assert "Modelled: trn2+no-loops, constants" in said
    assert "Workaround no-loops: programs are unrolled" in said
