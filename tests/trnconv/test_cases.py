"""The table of named convolutions: readable, unambiguous, and affordable."""

from collections import Counter

import pytest

from trnconv.cases import BENCHMARK, CASES, EDGE, find
from trnconv.errors import TrnconvError

# A simulated edge case should take less than a second; NumPy does about this many in one.
AFFORDABLE_MACS = 200_000_000


def test_names_and_keys_are_unique():
    names = Counter([case.name for case in CASES] + [case.key for case in BENCHMARK])
    assert [name for name, count in names.items() if count > 1] == []
    assert "" not in names


def test_names_are_words():
    assert [case.name for case in CASES if not case.name.isidentifier()] == []
    assert [case.name for case in CASES if not case.note] == []


def test_a_case_is_found_by_name_and_by_key():
    assert find("wan_96_wide") is find("a")
    assert {find(case.key).name for case in BENCHMARK} == {case.name for case in BENCHMARK}
    assert {find(case.name) for case in EDGE} == set(EDGE)


def test_an_unknown_name_is_refused_with_its_neighbours():
    with pytest.raises(TrnconvError, match=r"'wan_97_wide': there is none. Try wan_96_wide"):
        find("wan_97_wide")
    with pytest.raises(TrnconvError, match="there is none"):
        find("")


def test_edge_cases_are_affordable():
    assert {
        case.name: case.shape.macs() for case in EDGE if case.shape.macs() > AFFORDABLE_MACS
    } == {}


@pytest.mark.parametrize(
    ("key", "macs"),
    [
        ("a", 96 * 96 * 27 * 4 * 48 * 1280),
        ("c2", 384 * 384 * 27 * 90 * 160),
        ("d", 96 * 3 * 27 * 4 * 48 * 1280),
        ("f", 384 * 768 * 3 * 90 * 160),
        ("g", 384 * 192 * 9 * 180 * 320),
        ("h1", 128 * 128 * 27 * 8 * 60 * 720),
        ("k3", 4 * 32 * 32 * 9 * 32 * 32),
        ("l", 256 * 256 * 9 * 222 * 222),
    ],
)
def test_work_of_the_benchmark_layers_by_hand(key, macs):
    assert find(key).shape.macs() == macs


def test_the_edges_reach_where_plans_break():
    """Each property below broke a kernel somewhere; one case at least must have it."""
    shapes = [case.shape for case in EDGE]
    for c_in in (3, 4, 12, 16, 33, 48, 65):
        assert any(shape.c_in == c_in for shape in shapes), c_in
    for c_out in (3, 12, 48, 129):
        assert any(shape.c_out == c_out for shape in shapes), c_out
    assert any(shape.out_size(0) == 1 < shape.kernel[0] for shape in shapes)
    assert any(shape.stride == shape.kernel != (1, 1, 1) for shape in shapes)
    assert any(shape.pad_before != shape.pad_after for shape in shapes)
    assert any(max(shape.dilation) > 1 < max(shape.stride) for shape in shapes)
    assert any(all(p >= k for p, k in zip(s.pad_before, s.kernel, strict=True)) for s in shapes)
    assert any(shape.batch > 2 for shape in shapes)
    assert {case.dtype for case in EDGE} == {"bfloat16", "float16", "float32"}
