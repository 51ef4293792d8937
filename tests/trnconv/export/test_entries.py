"""One exported convolution as plain data, and which are refused."""

import json

import pytest

from nkisim.machine import TRN2
from trnconv.algorithms.recipe_parts import RecipePair
from trnconv.errors import UnsupportedError
from trnconv.export import ExportedProblem, exported_entry
from trnconv.export.entries import classes_of, encoded
from trnconv.geometry import ConvShape
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.policy import ALWAYS_DIRECT

pytestmark = pytest.mark.integrations
SHAPE = ConvShape(1, 8, 6, (3, 5, 7), (3, 3, 3), pad_before=(0, 1, 1), pad_after=(0, 1, 1))


def problem(shape, **more):
    return ExportedProblem(ConvProblem(shape, TRN2, policy=ALWAYS_DIRECT, **more), ("it",))


def test_a_document_is_json_and_names_its_kernel():
    entry = exported_entry(problem(SHAPE))
    document = json.loads(json.dumps(entry.document))
    assert document["kernel"] == "forward_on_two_cores"
    assert document["recipe"][0] == "@RecipePair"
    assert document["recipe"] == encoded(entry.prepared.recipe)
    assert [spec["dtype"] for spec in document["arrays"][0]] == ["bfloat16", "float32", "int32"]
    assert RecipePair in set(classes_of(entry.prepared.recipe))
    alone = exported_entry(problem(SHAPE), cores=1).document
    assert (alone["cores"], alone["kernel"], len(alone["arrays"])) == (1, "forward", 1)


def test_pieces_are_arguments_of_the_kernel():
    document = exported_entry(problem(SHAPE, pieces=(2, 1))).document
    assert document["kernel"] == "forward_of_two_on_two_cores"
    assert document["problem"]["pieces"] == [[1, 8, 2, 5, 7], [1, 8, 1, 5, 7]]


def test_what_cannot_be_exported_is_refused_by_name():
    large = ConvShape(3, 8, 8, (100, 720, 1280), (3, 3, 3))
    with pytest.raises(UnsupportedError, match=r"it: a convolution of .* launches is not exported"):
        exported_entry(problem(large))
    lines = ConvShape(1, 256, 256, (1, 1, 4096), (1, 1, 4), groups=256)
    with pytest.raises(UnsupportedError, match="planned as depthwise"):
        exported_entry(problem(lines, algorithms=("depthwise",)))
    with pytest.raises(UnsupportedError, match="it: float64 is not exported"):
        exported_entry(problem(SHAPE, dtype="float64"))
