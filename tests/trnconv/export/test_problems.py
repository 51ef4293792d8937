"""What is exported: models, layers by name, files of shapes; and what is refused."""

import json

import pytest

from nkisim.machine import TRN2
from trnconv.errors import ShapeError, TrnconvError
from trnconv.export import problems_of
from trnconv.geometry import conv_shape
from trnconv.models import find
from trnconv.traces import without_norms
from trnconv.traces.files import shipped

pytestmark = pytest.mark.integrations


def test_a_model_is_all_its_convolutions_with_what_a_patched_one_fuses():
    problems = problems_of("wan2.1", "720x1280", "decode", TRN2)
    entry = find("wan2.1")
    seen = without_norms(shipped(entry, entry.production, "decode"))
    names = {name for problem in problems for name in problem.names}
    assert names == {work.module for work, *_ in seen.works}
    assert len({problem.problem for problem in problems}) == len(problems)
    assert any(problem.problem.pieces == (2, 2, 2) for problem in problems)
    assert problems == problems_of("wan2.1", "720p81", "decode", TRN2)


def test_layers_by_name():
    found = problems_of("wan_96_wide,wan_384_720p_1_frame", "", "decode", TRN2)
    assert [problem.names for problem in found] == [("wan_96_wide",), ("wan_384_720p_1_frame",)]
    with pytest.raises(ShapeError, match="--size 720x1280 of wan_96_wide"):
        problems_of("wan_96_wide", "720x1280", "decode", TRN2)
    with pytest.raises(TrnconvError, match="a case called 'wan_97': there is none"):
        problems_of("wan_97", "", "decode", TRN2)


def test_a_file_of_shapes(tmp_path):
    file = tmp_path / "shapes.json"
    shape = {
        "input": [1, 8, 3, 6, 6],
        "weight": [4, 8, 3, 3, 3],
        "padding": [[2, 0], [1, 1], [1, 1]],
    }
    file.write_text(json.dumps([shape]))
    (problem,) = problems_of(str(file), "", "decode", TRN2)
    expected = conv_shape((1, 8, 3, 6, 6), (4, 8, 3, 3, 3), padding=((2, 0), (1, 1), (1, 1)))
    assert problem.problem.shape == expected


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("{", "A list of shapes in JSON is needed"),
        ("[]", "a list of shapes is needed"),
        ('[{"input": [1, 8, 3, 6, 6]}]', "an object with input, weight"),
        ('[{"input": [1], "weight": [1], "color": 3}]', "an object with input, weight"),
    ],
)
def test_files_that_are_no_shapes(tmp_path, text, match):
    file = tmp_path / "shapes.json"
    file.write_text(text)
    with pytest.raises(TrnconvError, match=match):
        problems_of(str(file), "", "decode", TRN2)
    with pytest.raises(TrnconvError, match="absent"):
        problems_of(str(tmp_path / "absent.json"), "", "decode", TRN2)
