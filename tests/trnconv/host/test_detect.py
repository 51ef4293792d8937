"""The machine of a host is found, or refused in words."""

import pytest

from trnconv.errors import UnsupportedError
from trnconv.host.detect import LNC_VARIABLE, TARGET_VARIABLE, DetectedHost, detect


@pytest.mark.parametrize(
    ("product", "target", "lnc"),
    [
        ("trn2.48xlarge", "trn2", 2),
        ("trn2.3xlarge", "trn2", 2),
        ("trn2u-ac.48xlarge", "trn2", 2),
        ("trn1.2xlarge", "trn1", 1),
        ("trn1n.32xlarge", "trn1", 1),
        ("inf2.xlarge", "trn1", 1),
        ("trn3.48xlarge", "trn3", 2),
    ],
)
def test_an_instance_says_what_it_is(product, target, lnc):
    detected = detect({}, product)
    assert (detected.target, detected.lnc) == (target, lnc)
    assert detected.target_source == f"the instance is a {product}"


def test_the_environment_may_state_it():
    detected = detect({TARGET_VARIABLE: "trn2", LNC_VARIABLE: "1"}, "")
    assert (detected.target, detected.lnc) == ("trn2", 1)
    assert detected.exports({TARGET_VARIABLE: "trn2", LNC_VARIABLE: "1"}) == ()


def test_what_is_missing_is_a_line_to_export():
    lines = DetectedHost("trn2", "", 2, "").exports({TARGET_VARIABLE: "trn2"})
    assert lines == (f"export {LNC_VARIABLE}=2",)


def test_the_environment_may_not_contradict_the_instance():
    with pytest.raises(UnsupportedError, match=f"`export {TARGET_VARIABLE}=trn2`"):
        detect({TARGET_VARIABLE: "trn3"}, "trn2.48xlarge")


@pytest.mark.parametrize("stated", ["0", "3", "two"])
def test_cores_that_no_logical_core_has_are_refused(stated):
    with pytest.raises(UnsupportedError, match="1 to 2 cores"):
        detect({LNC_VARIABLE: stated}, "trn2.48xlarge")


def test_an_unknown_host_is_refused_unless_a_default_is_given():
    with pytest.raises(UnsupportedError, match="which is none of trn1"):
        detect({}, "m7i.large")
    assert detect({}, "m7i.large", default="trn2").target == "trn2"
