"""The `repr` of a recipe: one for equal recipes, another for any change of it or of its kernel."""

import subprocess
import sys
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from time import process_time

import pytest

from nkisim.machine import TRN2
from repetition import few
from trnconv.algorithms import digest
from trnconv.geometry import conv_shape
from trnconv.planner.best import searched_plan
from trnconv.planner.shares import shared_plans
from trnconv.planner.table import algorithm_of
from trnconv.problem.conv_problem import WEIGHT_GRADIENT, ConvProblem
from trnconv.problem.policy import FAST, Policy
from trnconv.runtime.launch import prepare
from yardstick import limit_s

SHAPE = conv_shape((1, 96, 3, 12, 16), (96, 96, 3, 3, 3), padding=(0, 1, 1))
DEEP = conv_shape((1, 70, 3, 6, 8), (70, 1, 3, 3, 3), padding=1, groups=70)
PROBLEMS = {
    "direct": ConvProblem(SHAPE, TRN2, algorithms=("direct",)),
    "winograd": ConvProblem(
        SHAPE, TRN2, policy=Policy(FAST, least_macs=0), algorithms=("winograd",)
    ),
    "depthwise": ConvProblem(DEEP, TRN2, algorithms=("depthwise",)),
    "weight_gradient": ConvProblem(SHAPE, TRN2, direction=WEIGHT_GRADIENT),
}
algorithms = pytest.mark.parametrize("algorithm", PROBLEMS)
CALLS = 100
LONGEST_S = 1e-3


def recipe_of(algorithm):
    plan = searched_plan(PROBLEMS[algorithm]).plan
    assert plan.algorithm == algorithm
    return algorithm_of(plan).lower(plan).recipe


@algorithms
def test_equal_recipes_have_one_repr(algorithm):
    one, two = recipe_of(algorithm), recipe_of(algorithm)
    assert one is not two
    assert one == two
    assert repr(one) == repr(two)
    assert hash(one) == hash(two)
    assert len(repr(one)) < 100


@algorithms
def test_any_changed_field_makes_another(algorithm):
    recipe = recipe_of(algorithm)
    changed = list(others(recipe))
    assert len(changed) > len(fields(recipe))
    assert len({repr(one) for one in (recipe, *changed)}) == 1 + len(changed)


def others(value):
    """Values like this one, each with one thing changed; of a tuple, its end or its last item."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield value + 1
    elif isinstance(value, str):
        yield value + "x"
    elif isinstance(value, tuple):
        yield (*value, 12345)
        for other in others(value[-1]) if value else ():
            yield (*value[:-1], other)
    elif is_dataclass(value):
        for field in fields(value):
            for other in others(getattr(value, field.name)):
                yield replace(value, **{field.name: other})


@few(1)
@algorithms
def test_another_process_gives_the_same(algorithm):
    """Nothing in it is an address, or depends on how sets and hashes fall."""
    code = f"import test_digest; print(repr(test_digest.recipe_of({algorithm!r})))"
    paths = [*sys.path, str(Path(__file__).parent)]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path = {paths!r}\n{code}"],
        capture_output=True,
        text=True,
        timeout=limit_s(60),
        check=True,
    )
    assert done.stdout.strip() == repr(recipe_of(algorithm))


@algorithms
def test_an_edited_kernel_makes_another(algorithm, monkeypatch):
    before = repr(recipe_of(algorithm))
    monkeypatch.setattr(digest, "sources_digest", lambda module: f"edited {module}")
    assert repr(recipe_of(algorithm)) != before


def test_what_a_kernel_imports_counts_and_nothing_else_does(tmp_path, monkeypatch):
    package = tmp_path / "some_kernels"
    package.mkdir()
    files = {
        "__init__": "",
        "kernel": "import math\nfrom some_kernels import parts\n",
        "parts": "from some_kernels.deeper import number\n",
        "deeper": "number = 1\n",
        "prices": "price = 1\n",
    }
    for name, text in files.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)

    def edited(name, text):
        (package / f"{name}.py").write_text(text)
        digest.sources_digest.cache_clear()
        return digest.sources_digest("some_kernels.kernel")

    before = edited("prices", "price = 1\n")
    assert edited("prices", "price = 2\n") == before
    assert edited("deeper", "number = 2\n") != before
    assert edited("deeper", "number = 1\n") == before
    assert edited("kernel", files["kernel"] + "# another line\n") != before
    digest.sources_digest.cache_clear()


@algorithms
def test_sources_are_those_that_the_kernel_runs(algorithm):
    """Kernels and the parts they call, but not how plans are found and priced."""
    named = {
        name.removeprefix("trnconv.")
        for name, _ in digest.sources_of(f"trnconv.algorithms.{algorithm}.kernel")
    }
    assert {f"algorithms.{algorithm}.kernel", f"algorithms.{algorithm}.recipe", "_nki"} <= named
    parts = {"direct": "core", "winograd": "core", "weight_gradient": "tiles"}
    assert algorithm not in parts or f"algorithms.{algorithm}.{parts[algorithm]}" in named
    assert not [name for name in named if name.endswith(("cost", "candidates", "search"))]


def test_a_call_takes_less_than_a_millisecond():
    """What NKI does at every call, with the recipes of two cores, once they are known."""
    plans = tuple(priced.plan for priced in shared_plans(PROBLEMS["direct"]))
    recipes = prepare(plans).recipe
    assert repr(recipes.cores[0]) != repr(recipes.cores[1])
    assert all(repr(one) in repr(recipes) for one in recipes.cores)
    begin = process_time()
    for _ in range(CALLS):
        repr(recipes)
    assert (process_time() - begin) / CALLS < limit_s(LONGEST_S)
