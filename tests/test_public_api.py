"""What others may import: a change shows up in the review of tests/golden."""

import importlib

import pytest

from public_surface import surface_of

MODULES = (
    "nkisim",
    "nkisim.machine",
    "nkisim.timing",
    "trnconv",
    "trnconv.cases",
    "trnconv.errors",
    "trnconv.geometry",
    "trnconv.model_plan",
    "trnconv.models",
    "trnconv.traces",
    "trnconv.problem.policy",
    "trnconv.problem.conv_problem",
    "trnconv.algorithms.algorithm",
    "trnconv.planner.best",
    "trnconv.planner.explain",
    "trnconv.planner.table",
    "trnconv.planner.tuned_plans",
    "trnconv.runtime",
    "trnconv.runtime.launch",
    "trnconv.runtime.pricing",
    "trnconv.runtime.tuning",
)


@pytest.mark.parametrize("name", MODULES)
def test_public_names_and_signatures_are_the_reviewed_ones(golden, name):
    golden(f"api_{name}.txt", surface_of(importlib.import_module(name)))


@pytest.mark.torch
@pytest.mark.parametrize("name", ["trnconv.pytorch", "trnconv.pytorch.functional"])
def test_names_and_signatures_for_torch_are_the_reviewed_ones(golden, name):
    golden(f"api_{name}.txt", surface_of(importlib.import_module(name)))
