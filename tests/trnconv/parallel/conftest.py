"""Processes that run together, started once for all tests that need them."""

import pytest


@pytest.fixture(scope="session")
def ranks(tmp_path_factory):
    """Four of them; each test uses the first few."""
    from ranks import Ranks

    started = Ranks(4, tmp_path_factory.mktemp("ranks"))
    yield started
    started.end()


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """As the ranks have: torch's sums depend on it."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
