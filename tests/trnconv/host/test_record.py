"""What is known of a host: stored, read again, and part of the machine that is planned for."""

import pytest

from trnconv.errors import UnsupportedError
from trnconv.host.record import HostRecord, read_host, write_host


def test_a_record_is_read_as_it_was_written(tmp_path):
    record = HostRecord("here").with_workarounds("fence", "one-core")
    path = write_host(record, tmp_path / "folder" / "host.json")
    assert read_host(path) == record
    assert record.workarounds == ("fence", "one-core")


def test_without_a_file_nothing_is_worked_around(tmp_path):
    assert read_host(tmp_path / "none.json").workarounds == ()


def test_workarounds_are_part_of_the_machine():
    machine = HostRecord("here").with_workarounds("no-loops", "fence", "one-core").machine("trn2")
    assert machine.name == "trn2+fence+no-loops"
    assert not machine.accepts.loops
    assert HostRecord("here").machine("trn2").name == "trn2"


def test_unknown_workarounds_are_refused(tmp_path):
    with pytest.raises(UnsupportedError, match="a workaround 'hope'"):
        HostRecord("here").with_workarounds("hope")
    broken = tmp_path / "host.json"
    broken.write_text('{"host": "here", "workarounds": ["hope"]}')
    with pytest.raises(UnsupportedError, match="a workaround 'hope'"):
        read_host(broken)


@pytest.mark.parametrize("text", ["{", '{"name": 1}'])
def test_a_broken_record_is_refused(tmp_path, text):
    broken = tmp_path / "host.json"
    broken.write_text(text)
    with pytest.raises(UnsupportedError, match="Remove it and run"):
        read_host(broken)
