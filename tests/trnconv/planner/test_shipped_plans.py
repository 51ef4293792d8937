"""Shipped plans: what the planner answers from them, and that those of the package are good."""

import json
import zlib
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from nkisim.machine import CONSTANTS_VERSION, TRN2, TRN3
from repetition import few
from trnconv.cases import find
from trnconv.crop import effort
from trnconv.errors import PlanError
from trnconv.geometry import ConvShape, conv_shape
from trnconv.model_plan import model_plan
from trnconv.model_plan.prices import Prices
from trnconv.model_plan.registry_plans import SHIPPED_LAUNCHES, Making
from trnconv.models import models
from trnconv.planner import best, shipped_plans
from trnconv.planner.best import best_plan, only, searched_plan
from trnconv.planner.shares import launch_ns, loops, searched_pair, shared_plans
from trnconv.planner.shipped_file import (
    REFUSED,
    ShippedError,
    ShippedFile,
    answer_of,
    digest_of,
    entry_of,
    parse,
    plans_of,
    refusal,
)
from trnconv.planner.shipped_plans import (
    ShippedSet,
    ShippedWarning,
    is_shipped,
    narrower_answer,
    shipped_answer,
    shipped_digest,
    shipped_plans_of,
    shipped_plans_used,
    shipped_set,
)
from trnconv.planner.tuned_file import TunedPlan, key_of, written
from trnconv.planner.tuned_plans import use_tuned
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.epilogue import Epilogue, NormEpilogue
from trnconv.problem.launches import planned_parts
from trnconv.problem.limits import DEFAULT_BUDGET
from trnconv.problem.limits import GRAPH_INSTRUCTIONS as FULL
from trnconv.problem.policy import Policy
from trnconv.reference import forward
from trnconv.runtime.convolve import LaunchOptions, convolve_shape
from trnconv.runtime.pricing import price
from trnconv.runtime.tuning import Effort, best_candidates
from trnconv.verification.bounds import half_steps, largest_errors
from trnconv.verification.layer import random_data

STAMP = {"code": "of a test", "constants": CONSTANTS_VERSION, "library": "0"}
DIRECT = ConvProblem(find("wan_from_latent").shape, TRN2)
FAST = ConvProblem(find("hunyuan_512").shape, TRN2)
SIGNAL = ConvProblem(
    conv_shape((8, 512, 2048), (512, 1, 3), padding=1, groups=512), TRN2, "float32"
)
POINTS = ConvProblem(conv_shape((1, 16, 1, 116, 208), (16, 16, 1, 1, 1)), TRN2)
EVERY = {"direct": DIRECT, "winograd": FAST, "depthwise": SIGNAL, "points": POINTS}
LARGEST_BYTES = 450_000  # of all files, compressed as a wheel has them


def other_plan(problem):
    """A legal plan that a search does not take."""
    return best_candidates(problem, 2)[1]


@pytest.fixture
def ship(monkeypatch):
    """Make entries, for problems, all that is shipped for launches of trn2."""

    def shipping(*pairs, cores=1, constants=CONSTANTS_VERSION):
        stamp = {**STAMP, "constants": constants}
        entries = {digest_of(problem): entry for problem, entry in pairs}
        file = ShippedFile("trn2", cores, "a model", stamp, entries)
        read = parse(file.text(), "a test")
        assert read == file
        none = ShippedSet((), {}, "")
        full = ShippedSet((read,), read.plans, "a digest")
        monkeypatch.setattr(
            shipped_plans,
            "shipped_set",
            lambda *launch: full if launch == ("trn2", cores) else none,
        )

    return shipping


@pytest.mark.parametrize("problem", EVERY.values(), ids=list(EVERY))
def test_plans_are_read_as_they_were_written(problem):
    for taken in ((searched_plan(problem),), searched_pair(problem)):
        entry = json.loads(json.dumps(entry_of(problem, taken, 0)))
        assert answer_of(problem, entry) == taken
        assert ("second" in entry) == (len(taken) == 2)


@pytest.mark.parametrize("problem", [DIRECT, FAST], ids=["direct", "winograd"])
def test_an_entry_has_nothing_that_the_problem_says(problem):
    entry = entry_of(problem, searched_pair(problem), 0)
    asked = {"shape", "reduced", "machine_name", "dtype", "epilogue", "prologue", "pieces"}
    assert not asked & (entry["plan"].keys() | entry["second"].keys())


def test_the_planner_takes_a_shipped_plan(ship):
    other = other_plan(DIRECT)
    assert other.plan != searched_plan(DIRECT).plan
    ship((DIRECT, entry_of(DIRECT, (other,), 0)))
    assert best_plan(DIRECT) == other
    assert shared_plans(DIRECT) == searched_pair(DIRECT)
    assert price(DIRECT, cores=1).shipped
    assert not price(DIRECT, cores=2).shipped
    with shipped_plans_used(wanted=False):
        assert best_plan(DIRECT) == searched_plan(DIRECT)
        assert not price(DIRECT, cores=1).shipped


def test_two_cores_have_the_shipped_pair(ship):
    pair = searched_pair(POINTS)
    swapped = (pair[1], pair[0])
    ship((POINTS, entry_of(POINTS, swapped, 0)), cores=2)
    assert shared_plans(POINTS) == swapped != pair
    assert price(POINTS).shipped


@pytest.mark.parametrize(
    "problem",
    [
        replace(DIRECT, machine=TRN3),
        replace(DIRECT, dtype="float32"),
        replace(DIRECT, reproducible=True),
        replace(DIRECT, exact=True),
        replace(DIRECT, policy=replace(DIRECT.policy, accuracy="fast")),
        replace(DIRECT, shape=replace(DIRECT.shape, c_out=200)),
        replace(DIRECT, budget=10),
        replace(DIRECT, budget=DEFAULT_BUDGET + 1),
    ],
    ids=["machine", "dtype", "reproducible", "exact", "policy", "shape", "short", "long"],
)
def test_a_shipped_plan_answers_its_own_problem_only(ship, problem):
    ship((DIRECT, entry_of(DIRECT, (searched_plan(DIRECT),), 0)))
    assert shipped_answer(DIRECT, 1) is not None
    assert shipped_answer(problem, 1) is None


def test_shorter_plans_answer_shorter_budgets(ship):
    """Each of its own budget, and of shorter ones that it keeps to by chance."""
    usual, short = searched_plan(FAST), searched_plan(replace(FAST, budget=8_000))
    assert usual.cost.instructions > 12_000
    assert 4_000 < short.cost.instructions < 6_000
    within = {limit: replace(FAST, budget=limit) for limit in (12_000, 8_000, 6_000, 4_000)}
    ship((FAST, entry_of(FAST, (usual,), 0)), (within[8_000], entry_of(within[8_000], (short,), 0)))
    found = {limit: shipped_answer(problem, 1) for limit, problem in within.items()}
    assert found == {12_000: None, 8_000: (short,), 6_000: (short,), 4_000: None}
    assert price(within[6_000], cores=1).shipped
    assert shipped_answer(FAST, 1) == (usual,)


def test_what_has_no_plan_of_a_length_has_no_shorter_one(ship):
    ship(
        (FAST, entry_of(FAST, (searched_plan(FAST),), 0)), (replace(FAST, budget=2_000), refusal())
    )
    assert shipped_answer(FAST, 1) is not None
    assert shipped_answer(replace(FAST, budget=3_000), 1) is None
    for budget in (2_000, 1_500, 10):
        with pytest.raises(PlanError, match=f"at most {budget} static instructions"):
            shipped_answer(replace(FAST, budget=budget), 1)


def test_plans_of_other_constants_are_left_alone(ship):
    ship((DIRECT, entry_of(DIRECT, (other_plan(DIRECT),), 0)), constants="none")
    assert shipped_answer(DIRECT, 1) is None
    assert best_plan(DIRECT) == searched_plan(DIRECT)


@pytest.mark.parametrize("values", [{"rows": 10**6}, {"slots": [10**6, 0, 0]}])
def test_a_plan_that_cannot_be_is_searched_for_and_said(ship, values):
    entry = entry_of(DIRECT, (searched_plan(DIRECT),), 0)
    ship((DIRECT, {**entry, "plan": {**entry["plan"], **values}}))
    with pytest.warns(ShippedWarning, match="searched for"):
        assert best_plan(DIRECT) == searched_plan(DIRECT)


def test_what_has_no_plan_is_not_searched_again(ship):
    ship((DIRECT, refusal()))
    assert is_shipped(DIRECT, 1)
    assert shipped_plans_of(DIRECT, 1) == ()
    with pytest.raises(PlanError, match="no plan with at most 40000 static instructions"):
        best_plan(DIRECT)


def test_a_tuned_plan_comes_before_a_shipped_one(ship, tmp_path):
    ship((DIRECT, entry_of(DIRECT, (searched_plan(DIRECT),), 0)))
    other = other_plan(DIRECT).plan
    file = tmp_path / "tuned.json"
    file.write_text(written("trn2", [TunedPlan(key_of(DIRECT), other, 1.0, 2.0, 3)]))
    with use_tuned(file):
        assert best_plan(DIRECT).plan == other


def test_prices_follow_from_what_is_shipped(ship):
    ship((DIRECT, refusal()))
    assert shipped_digest("trn2", 1) == "a digest"
    assert shipped_digest("trn2", 2) == ""
    with shipped_plans_used(wanted=False):
        assert shipped_digest("trn2", 1) == ""


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"machine": "trn2"}'])
def test_a_file_that_is_something_else_is_refused(text):
    with pytest.raises(ShippedError, match="trnconv tune --registry"):
        parse(text, "a file")


@pytest.mark.parametrize(
    "entry", [{"algorithm": "none", "plan": {}}, {"algorithm": "direct", "plan": {}}]
)
def test_an_entry_that_is_no_plan_is_refused(entry):
    with pytest.raises(ShippedError, match="trnconv tune --registry"):
        plans_of(DIRECT, entry)


LAUNCHES = [
    f"{machine} {cores}" for machine, cores in SHIPPED_LAUNCHES if shipped_set(machine, cores).files
]


def test_plans_are_shipped_for_every_launch():
    assert [f"{machine} {cores}" for machine, cores in SHIPPED_LAUNCHES] == LAUNCHES


@lru_cache(maxsize=8)
def stored(launch):
    """Problems of the registry that have a plan in the package, small ones first."""
    machine, cores = launch.split()
    found = {}
    for entry in models():
        making = Making(entry, machine, int(cores), "bf16", Effort(), Path())
        found.update(dict.fromkeys(making.problems()))
    answered = [problem for problem in found if shipped_plans_of(problem, int(cores))]
    return sorted(answered, key=lambda problem: (problem.shape.macs(), digest_of(problem)))


@pytest.mark.parametrize("launch", LAUNCHES)
def test_plans_of_the_package_are_of_todays_constants(launch):
    machine, cores = launch.split()
    files = shipped_set(machine, int(cores)).files
    assert files
    assert {file.stamp["constants"] for file in files} == {CONSTANTS_VERSION}
    assert {file.model for file in files} == {entry.name for entry in models()}


@pytest.mark.parametrize("launch", LAUNCHES)
def test_equal_convolutions_of_models_are_stored_once(launch):
    machine, cores = launch.split()
    keys = [key for file in shipped_set(machine, int(cores)).files for key in file.plans]
    assert len(keys) == len(set(keys))


def stored_launches(problem, cores):
    """The plans of each launch of a convolution; none if it has none with the norm at its end."""

    def stored_plans(problem):
        if problem.budget > DEFAULT_BUDGET:  # longer than what ships
            return ()
        assert is_shipped(problem, cores) or problem.epilogue.norm is not None
        found = shipped_plans_of(problem, cores)
        if not found:
            raise PlanError("none is short enough")
        return found

    with suppress(PlanError):
        return list(planned_parts(problem, stored_plans))
    return []


@pytest.mark.parametrize("launch", LAUNCHES)
def test_every_convolution_of_the_registry_is_stored(launch):
    """A norm at its end may be done apart."""
    machine, cores = launch.split()
    for entry in models():
        for problem in Making(entry, machine, int(cores), "bf16", Effort(), Path()).problems():
            assert stored_launches(problem, int(cores)) or problem.epilogue.norm is not None


def test_plans_of_the_package_are_small():
    folder = resources.files("trnconv.planner") / shipped_plans.DATA
    texts = [path.read_bytes() for path in folder.iterdir()]
    assert sum(len(zlib.compress(text)) for text in texts) < LARGEST_BYTES


@pytest.mark.parametrize("launch", LAUNCHES)
def test_plans_of_the_package_are_legal(launch):
    """One in twenty; each of its problems has an answer without a warning."""
    cores = int(launch.split()[1])
    for problem in stored(launch)[::20]:
        taken = shipped_answer(problem, cores)
        assert len(taken) == cores
        assert len({loops(answer.plan) for answer in taken}) == 1


@few(3)
@pytest.mark.parametrize("launch", LAUNCHES)
@pytest.mark.parametrize("place", range(0, 100, 11))  # percent of the way to the largest
def test_plans_of_the_package_are_not_slower_than_what_a_search_finds(launch, place):
    problems, cores = stored(launch), int(launch.split()[1])
    problem = problems[place * len(problems) // 100]
    searched = searched_pair(problem) if cores == 2 else (searched_plan(problem),)
    found = shipped_answer(problem, cores)
    # One that its schedule chose may be slower by the cost model, as much as that may be off.
    is_short = max(answer.cost.instructions for answer in found) <= Effort().longest
    most = 1.02 if is_short else 1 + 1e-9
    assert launch_ns(found) <= most * launch_ns(searched)


@pytest.mark.parametrize("accuracy", ["fast", "fastest"])
def test_plans_of_the_package_are_not_slower_than_those_of_a_narrower_accuracy(accuracy):
    """One in ten of those that ship for the accuracy."""
    policy = Policy(accuracy)
    wider = [replace(problem, policy=policy) for problem in stored("trn2 2")]
    shipped = [problem for problem in wider if shipped_plans_of(problem, 2)]
    assert len(shipped) > 100
    for problem in shipped[::10]:
        narrower = narrower_answer(problem, 2)
        assert launch_ns(shipped_answer(problem, 2)) <= launch_ns(narrower) * (1 + 1e-9)


def is_plain(problem):
    """Whether it is one tensor and a bias, and small."""
    bare = isinstance(problem.shape, ConvShape)
    bare = bare and problem == ConvProblem(problem.shape, problem.machine)
    return bare and effort(problem.shape) < 2 * 10**8


@few(3)
@pytest.mark.parametrize("launch", LAUNCHES)
@pytest.mark.parametrize("place", range(3))
def test_plans_of_the_package_compute_what_they_should(launch, place):
    cores = int(launch.split()[1])
    small = [problem for problem in stored(launch) if is_plain(problem)]
    problem = small[place * (len(small) - 1) // 2]
    plans = tuple(answer.plan for answer in shipped_answer(problem, cores))
    shape = problem.shape
    x, w, bias = random_data(shape, problem.dtype, place)
    options = LaunchOptions(problem.machine.name, plans=plans)
    y = convolve_shape((x,), w, bias, shape, options).y
    exact = forward(x, w, bias, shape)
    off = largest_errors(x, w, bias, shape, plans[0])
    bound = off + half_steps(np.abs(exact) + off, y.dtype)
    assert (np.abs(y.astype(np.float64) - exact) <= bound).all()


@few(1)
@pytest.mark.parametrize(
    "asked",
    [
        ("easyanimate5", "512x512x49", "decode"),
        ("easyanimate5", "768x1344x49", "decode"),
        ("easyanimate5", "768x1344x49", "encode"),
        ("kvae-video", "720p81", "encode"),
        ("kvae-video", "720p81", "decode"),
        ("kvae-video", "480p81", "decode"),
        ("kandinsky6-sr", "720p81", "decode"),
    ],
    ids=" ".join,
)
def test_models_that_are_too_long_for_a_graph_have_shorter_plans_in_the_package(asked):
    """Of usual length they have up to four times what a graph may; none is searched for."""
    planned = model_plan(*asked)
    usual = Prices()
    machine = planned.options.machine
    calls = {layer.work.problem(machine): 0 for layer in planned.layers}
    for layer in planned.layers:
        calls[layer.work.problem(machine)] += layer.calls
    assert sum(count * usual.of(one).instructions for one, count in calls.items()) > FULL
    assert planned.instructions <= FULL
    assert all(layer.price.shipped for layer in planned.layers)


def test_a_convolution_whose_launch_is_refused_is_cut():
    [model] = (entry for entry in models() if entry.name == "ltx-video-0.9.7")
    entries = shipped_set("trn2", 2).entries
    problems = Making(model, "trn2", 2, "bf16", Effort(), Path()).problems()
    refused = [one for one in problems if REFUSED in entries[digest_of(one)]]
    bare = [problem for problem in refused if problem.epilogue.norm is None]
    assert price(bare[0], beyond_hbm=True).launches > 1
    normed = [problem for problem in refused if problem.epilogue.norm is not None]
    with pytest.raises(PlanError):
        price(normed[0], beyond_hbm=True)


def test_a_wider_policy_is_never_slower_than_what_is_shipped_for_a_narrower_one(ship, monkeypatch):
    """Searches look through fewer sizes than plans that ship were found among."""
    small = ConvProblem(conv_shape((1, 96, 3, 12, 20), (96, 96, 3, 3, 3), padding=(0, 1, 1)), TRN2)
    stored = best_plan(small)
    ship((small, entry_of(small, (stored,), 9)))
    wider = replace(small, policy=replace(small.policy, accuracy="fast"))
    slow = replace(stored, cost=replace(stored.cost, total_ns=2 * stored.cost.total_ns))
    monkeypatch.setattr(best, "searched_plan", lambda _: slow)
    assert best_plan(wider).cost == stored.cost
    monkeypatch.setattr(
        best, "searched_plan", lambda _: replace(slow, cost=replace(slow.cost, total_ns=1))
    )
    assert best_plan(wider).cost.total_ns == 1
    narrow = replace(small, policy=replace(small.policy, accuracy="direct"))
    assert best_plan(narrow).cost.total_ns == 1


def test_a_norm_at_the_end_has_the_shipped_plan_if_it_fits(ship):
    shape = conv_shape((1, 96, 3, 12, 20), (96, 96, 3, 3, 3), padding=(0, 1, 1))
    plain = ConvProblem(shape, TRN2, policy=Policy("bf16", least_macs=0), algorithms=("winograd",))
    stored = other_plan(plain)
    ship((plain, entry_of(plain, (stored,), 9)))
    normed = replace(plain, epilogue=Epilogue(norm=NormEpilogue(1.0, "silu")))
    assert best_plan(normed).plan == stored.plan.but(epilogue=normed.epilogue)


def test_a_shipped_plan_of_an_algorithm_without_norms_is_not_taken_for_a_norm(ship):
    shape = conv_shape((1, 96, 3, 12, 20), (96, 96, 3, 3, 3), padding=(0, 1, 1))
    plain = ConvProblem(shape, TRN2, policy=Policy("bf16", least_macs=0))
    direct = best_plan(only(plain, "direct"))
    ship((plain, entry_of(plain, (direct,), 9)))
    normed = replace(plain, epilogue=Epilogue(norm=NormEpilogue(1.0, "silu")))
    assert best_plan(plain).plan == direct.plan
    assert best_plan(normed).plan.algorithm == "winograd"
