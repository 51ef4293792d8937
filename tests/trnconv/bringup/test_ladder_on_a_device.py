"""The ladder on a device, as tests: skipped here, where there is none."""

import pytest

from trnconv.bringup import stages
from trnconv.bringup.ladder import RED

pytestmark = pytest.mark.device

CHECKS = [check for stage in (1, 2, 3) for check in stages.STAGES[stage]()]


@pytest.fixture(scope="session")
def bench():
    from trnconv.host.detect import detect
    from trnconv.host.record import read_host
    from trnconv.host.vendor import find_vendor

    return stages.bench_of(read_host(), detect(), find_vendor(), stages.DEVICE)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_check_of_the_ladder(check, bench):
    from trnconv.bringup.ladder import climb

    (climbed,) = climb([check], bench)
    assert climbed.finding.state != RED, f"{climbed.finding.words}; apply {climbed.workaround}"
