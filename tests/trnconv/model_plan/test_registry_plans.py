"""Plans of the registry, made: gone on with, equal ones once, tried harder on request."""

from dataclasses import replace

import pytest

from trnconv import cache
from trnconv.model_plan import registry_plans
from trnconv.model_plan.plans import plan_trace
from trnconv.model_plan.registry_plans import Making, make_plans
from trnconv.models import find
from trnconv.planner import best, shares, shipped_plans
from trnconv.planner.shares import launch_ns, plans_of_two, searched_pair
from trnconv.planner.shipped_file import (
    REFUSED,
    answer_of,
    digest_of,
    entry_of,
    parse,
    refusal,
)
from trnconv.planner.shipped_plans import plans_in_making
from trnconv.problem.limits import DEFAULT_BUDGET, GRAPH_INSTRUCTIONS, SHORTER_BUDGETS
from trnconv.runtime.launch import time_plans
from trnconv.runtime.tuning import (
    Effort,
    TunedLaunch,
    best_candidates,
    better_launch,
    fastest_launch,
    tuned_launch,
)
from trnconv.traces import shipped

SDXL = find("sdxl")
FEW = 3


def unwatched(_done, _all):
    """Nobody looks."""


@pytest.fixture
def making(monkeypatch, tmp_path):
    """Of a model with three small convolutions, at one size, in one phase."""
    seen = shipped(SDXL, SDXL.production, "decode")
    works = sorted(seen.works, key=lambda pair: pair[0].shape.macs())
    few = replace(seen, works=tuple({work.shape: (work, 1) for work, _ in works}.values())[:FEW])
    monkeypatch.setattr(registry_plans, "shipped", lambda *_: few)
    return Making(SDXL, "trn2", 2, "bf16", Effort(1), tmp_path)


@pytest.fixture
def searches(monkeypatch):
    """The problems that were searched, as they come."""
    found = []

    def counted(problem, *rest):
        found.append(problem)
        return tuned_launch(problem, *rest)

    monkeypatch.setattr(registry_plans, "tuned_launch", counted)
    return found


def test_a_file_has_the_plans_that_a_search_takes(making):
    file = make_plans(making, unwatched)
    assert parse(making.path.read_text(), "a test") == file
    assert file.name == "trn2_2_sdxl.json"
    assert dict(file.stamp) == cache.stamp()
    assert len(file.plans) == len(making.problems()) == FEW
    for problem in making.problems():
        assert answer_of(problem, file.plans[digest_of(problem)]) == searched_pair(problem)
    assert [path.name for path in making.folder.iterdir()] == [file.name]


def test_a_wider_accuracy_has_the_plan_of_a_narrower_one_where_that_is_faster(making, monkeypatch):
    """Searches of wider accuracies may have looked through fewer plans than those that ship."""
    narrower = make_plans(making, unwatched)

    def short_search(problem, *_):
        return TunedLaunch(plans_of_two(best_candidates(problem, 99)[-1], problem), 1)

    fast = replace(making, accuracy="fast")
    asked = list(zip(making.problems(), fast.problems(), strict=True))
    best = [answer_of(problem, narrower.plans[digest_of(problem)]) for problem, _ in asked]
    found = [short_search(wider).plans for _, wider in asked]
    assert any(launch_ns(taken) > launch_ns(own) for taken, own in zip(found, best, strict=True))
    monkeypatch.setattr(registry_plans, "tuned_launch", short_search)
    both = make_plans(fast, unwatched)
    for (_, wider), own in zip(asked, best, strict=True):
        assert launch_ns(answer_of(wider, both.plans[digest_of(wider)])) <= launch_ns(own)


class EndedError(Exception):
    """The maker is ended."""


def test_what_was_begun_is_gone_on_with(making, searches, monkeypatch):
    monkeypatch.setattr(registry_plans, "_SAVED_EVERY", 2)

    def end(done, _all):
        if done == FEW:
            raise EndedError

    with pytest.raises(EndedError):
        make_plans(making, end)
    assert not making.path.exists()
    searches.clear()
    whole = make_plans(making, unwatched)
    assert searches == making.problems()[2:]
    searches.clear()
    assert make_plans(making, unwatched) == whole
    assert searches == []


def test_a_part_that_was_cut_off_is_made_anew(making, searches):
    making.path.with_suffix(".part").write_text('{"machine": "tr')
    make_plans(making, unwatched)
    assert len(searches) == FEW


def test_plans_of_other_sources_are_kept_if_they_are_legal(making, searches, monkeypatch):
    first = make_plans(making, unwatched)
    stamp = {**cache.stamp(), "code": "other sources"}
    monkeypatch.setattr(cache, "stamp", lambda: stamp)
    searches.clear()
    again = make_plans(making, unwatched)
    assert (again.stamp, again.plans) == (stamp, first.plans)
    assert searches == []

    illegal = making.problems()[0]
    broken = {**first.plans, digest_of(illegal): {**first.plans[digest_of(illegal)]}}
    broken[digest_of(illegal)]["algorithm"] = "of another day"
    making.path.write_text(making.file(broken).text(), encoding="utf-8")
    assert make_plans(making, unwatched).plans == first.plans
    assert searches == [illegal]


def test_other_constants_make_all_anew(making, searches, monkeypatch):
    make_plans(making, unwatched)
    stamp = {**cache.stamp(), "constants": "other constants"}
    monkeypatch.setattr(cache, "stamp", lambda: stamp)
    searches.clear()
    assert make_plans(making, unwatched).stamp == stamp
    assert len(searches) == FEW


def test_equal_convolutions_of_models_are_searched_and_stored_once(making, searches):
    first = make_plans(making, unwatched)
    searches.clear()
    other = make_plans(replace(making, entry=find("flux")), unwatched)
    assert searches == []
    assert other.name == "trn2_2_flux.json"
    assert len(first.plans) == FEW
    assert other.plans == {}
    harder = replace(making, entry=find("flux"), effort=Effort(2, longest=0))
    assert make_plans(harder, unwatched).plans == {}
    making.path.unlink()
    alone = make_plans(replace(making, entry=find("flux")), unwatched)
    assert alone.plans == first.plans
    assert len(searches) == FEW


def test_what_has_plans_is_searched_again_on_request(making, searches):
    """A slower plan is replaced, a faster one kept; so is a refusal, and what others have."""
    first = make_plans(making, unwatched)
    slow, refused, kept = making.problems()
    slower = plans_of_two(best_candidates(slow, 99)[-1], slow)
    assert launch_ns(slower) > launch_ns(searched_pair(slow))
    plans = dict(first.plans)
    plans[digest_of(slow)] = entry_of(slow, slower, 4)
    making.path.write_text(making.file(plans).text(), encoding="utf-8")
    searches.clear()
    assert make_plans(making, unwatched).plans == plans
    assert searches == []
    plans[digest_of(refused)] = refusal()
    making.path.write_text(making.file(plans).text(), encoding="utf-8")
    assert make_plans(replace(making, again=True), unwatched).plans == first.plans
    assert searches == [slow, refused, kept]
    searches.clear()
    other = replace(making, entry=find("flux"), again=True)
    assert make_plans(other, unwatched).plans == {}
    assert searches == []


def test_a_plan_that_is_faster_than_what_a_search_finds_is_kept(making, monkeypatch):
    first = make_plans(making, unwatched)

    def short_search(problem, *_):
        return TunedLaunch(plans_of_two(best_candidates(problem, 99)[-1], problem), 1)

    monkeypatch.setattr(registry_plans, "tuned_launch", short_search)
    again = make_plans(replace(making, again=True), unwatched)
    for problem in making.problems():
        found, before = (
            answer_of(problem, one.plans[digest_of(problem)]) for one in (again, first)
        )
        assert launch_ns(found) == launch_ns(before)


def test_what_another_machine_has_is_taken_where_it_is_faster(making, monkeypatch):
    """Where more is tried than a search; of another number of cores nothing is taken."""
    problem = min(making.problems(), key=lambda asked: asked.shape.macs())
    best = make_plans(replace(making, machine="trn3"), unwatched)
    asked = []

    def shipped_elsewhere(machine, cores):
        asked.append((machine, cores))
        return shipped_plans.ShippedSet((best,), best.plans, "")

    def short_search(problem, *_):
        return TunedLaunch(plans_of_two(best_candidates(problem, 99)[-1], problem), 1)

    monkeypatch.setattr(registry_plans, "shipped_set", shipped_elsewhere)
    monkeypatch.setattr(registry_plans, "tuned_launch", short_search)
    found = {}
    for candidates in (1, 2):
        effort = Effort(candidates, longest=0)
        file = make_plans(replace(making, effort=effort, again=True), unwatched)
        found[candidates] = launch_ns(answer_of(problem, file.plans[digest_of(problem)]))
    there = launch_ns(answer_of(problem, best.plans[digest_of(problem)]))
    assert found[2] == there < found[1]


def test_a_file_keeps_its_plans_of_another_accuracy(making):
    first = make_plans(making, unwatched)
    both = make_plans(replace(making, accuracy="direct"), unwatched)
    assert first.plans.items() < both.plans.items()
    assert len(both.plans) == 2 * FEW


def test_where_plans_do_not_fit_a_graph_shorter_ones_are_made(making, searches, monkeypatch):
    """Just those that planning the model asks for: with them, it searches nothing."""
    seen = registry_plans.shipped()
    calls = 2 * GRAPH_INSTRUCTIONS // 5_000
    often = replace(seen, works=tuple((work, calls) for work, _ in seen.works))
    monkeypatch.setattr(registry_plans, "shipped", lambda *_: often)
    file = make_plans(making, unwatched)
    short = [problem for problem in searches if problem.budget < DEFAULT_BUDGET]
    assert {digest_of(problem) for problem in searches} == file.plans.keys()
    assert {problem.budget for problem in short} < set(SHORTER_BUDGETS)

    monkeypatch.setattr(best, "searched_plan", lambda problem: pytest.fail(str(problem)))
    monkeypatch.setattr(shares, "searched_plan", best.searched_plan)
    with plans_in_making(file):
        planned = plan_trace(often, SDXL.production)
    assert all(layer.price.shipped for layer in planned.layers)
    assert planned.instructions <= GRAPH_INSTRUCTIONS


def test_plans_are_tried_harder_on_request(making, searches):
    make_plans(making, unwatched)
    searches.clear()
    harder = make_plans(replace(making, effort=Effort(3, longest=10**6)), unwatched)
    assert searches == []
    assert {entry["tried"] for entry in harder.plans.values() if REFUSED not in entry} == {3}


def test_the_schedule_is_the_judge_of_short_programs(making):
    problem = min(making.problems(), key=lambda asked: asked.shape.macs())
    taken = searched_pair(problem)
    launch = better_launch(problem, taken, Effort(6, longest=10**6))
    assert ns_of(launch.plans) <= ns_of(taken)
    assert launch.tried == 6
    assert better_launch(problem, taken, Effort(1)).plans == taken
    assert better_launch(problem, taken, Effort(1)).tried == 0


def ns_of(taken):
    return time_plans(tuple(answer.plan for answer in taken)).makespan_ns


def test_close_programs_are_judged_by_their_schedules_if_they_are_short(making):
    """Otherwise, and if no more than a search is tried, by the cost model."""
    problem = min(making.problems(), key=lambda asked: asked.shape.macs())
    found = best_candidates(problem, 99)
    fast, slow = (plans_of_two(answer, problem) for answer in (found[0], found[-1]))
    assert ns_of(slow) > ns_of(fast)
    praised, overpraised = (priced_like(slow, fast, part) for part in (0.99, 0.97))
    for launches in ([fast, praised], [praised, fast]):
        assert fastest_launch(launches, Effort(2, longest=10**6)) == fast
        assert fastest_launch(launches, Effort(2, longest=10)) == praised
        assert fastest_launch(launches, Effort(1, longest=10**6)) == praised
    assert fastest_launch([fast, overpraised], Effort(2, longest=10**6)) == overpraised


def priced_like(launch, other, part):
    """The same plans, as if the cost model said that they take so much of others' time."""
    return tuple(
        replace(answer, cost=replace(answer.cost, total_ns=part * like.cost.total_ns))
        for answer, like in zip(launch, other, strict=True)
    )
