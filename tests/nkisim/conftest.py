"""Which version of NKI a test's kernels meet; 0.7 unless it asks for another."""

import pytest

from nkisim.running.api_version import select_version, selected_version


@pytest.fixture
def choose_nki():
    """A function that chooses a version until the end of the test."""
    before = selected_version()
    yield select_version
    select_version(before)


@pytest.fixture
def nki_0_6(choose_nki):
    choose_nki("0.6")
