"""Prices on disk: read back equal, written whole, and never trusted when something is off."""

import json
import os
import shutil
from dataclasses import replace
from math import inf
from pathlib import Path
from shutil import ignore_patterns

import pytest

from nkisim.machine import TRN2
from trnconv import cache as cache_module
from trnconv.cache import Cache, cache_folder
from trnconv.cases import find
from trnconv.errors import PlanError
from trnconv.geometry import conv_shape
from trnconv.model_plan import Prices
from trnconv.model_plan import prices as prices_module
from trnconv.planner.tuned_file import TunedPlan, key_of, written
from trnconv.planner.tuned_plans import use_tuned
from trnconv.problem.conv_problem import ConvProblem
from trnconv.problem.epilogue import Epilogue, NormEpilogue
from trnconv.runtime.pricing import price
from trnconv.runtime.tuning import best_candidates

PROBLEM = ConvProblem(find("wan_from_latent").shape, TRN2)
ASKED = {"what": 1}


def files(cache):
    return sorted(cache.folder.rglob("*.json"))


def test_an_answer_comes_back(tmp_path):
    cache = Cache(tmp_path)
    assert cache.get(ASKED) is None
    cache.put(ASKED, {"ns": 1.5})
    assert Cache(tmp_path).get(ASKED) == {"ns": 1.5}
    assert cache.get({"what": 2}) is None
    assert cache.told() == ""
    assert cache.holding().entries == 1


def spoil_text(document):
    return json.dumps(document)[:-7]


def spoil_stamp(document):
    return json.dumps({**document, "stamp": {**document["stamp"], "constants": "none"}})


def spoil_code(document):
    return json.dumps({**document, "stamp": {**document["stamp"], "code": "older"}})


def spoil_problem(document):
    return json.dumps({**document, "problem": {"what": 3}})


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (spoil_text, "1 unreadable"),
        (spoil_stamp, "1 of another version"),
        (spoil_code, "1 of another version"),
        (spoil_problem, "1 an answer to something else"),
        (lambda _: "[]", "1 an answer to something else"),
    ],
)
def test_a_file_that_is_off_is_set_aside_and_said(tmp_path, spoil, words):
    cache = Cache(tmp_path)
    cache.put(ASKED, 1)
    [path] = files(cache)
    path.write_text(spoil(json.loads(path.read_text())))
    assert cache.get(ASKED) is None
    assert words in cache.told()
    assert (cache.holding().entries, cache.holding().set_aside) == (0, 1)
    cache.put(ASKED, 2)
    assert cache.get(ASKED) == 2


def test_a_folder_that_cannot_be_written_is_said_and_not_fatal(tmp_path):
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file" / "prices")
    cache.put(ASKED, 1)
    assert "not written" in cache.told()


def test_nothing_half_written_is_left_behind(tmp_path):
    cache = Cache(tmp_path)
    for number in range(20):
        cache.put({"what": number}, number)
    assert len(files(cache)) == 20
    assert [path for path in tmp_path.rglob("*") if path.suffix not in ("", ".json")] == []


def test_prices_from_disk_are_those_of_the_planner(tmp_path):
    Prices(Cache(tmp_path)).of(PROBLEM)
    again = Prices(Cache(tmp_path))
    assert again.of(PROBLEM) == price(PROBLEM)


def test_a_stored_price_is_not_worked_out_again(tmp_path, monkeypatch):
    expected = Prices(Cache(tmp_path)).of(PROBLEM)
    monkeypatch.setattr(prices_module, "price", None)
    assert Prices(Cache(tmp_path)).of(PROBLEM) == expected


def test_a_stored_price_that_makes_no_sense_is_worked_out_again(tmp_path):
    cache = Cache(tmp_path)
    Prices(cache).of(PROBLEM)
    [path] = files(cache)
    document = json.loads(path.read_text())
    document["answer"]["ns"] = "soon"
    path.write_text(json.dumps(document))
    fresh = Cache(tmp_path)
    assert Prices(fresh).of(PROBLEM) == price(PROBLEM)
    assert "not what it should be" in fresh.told()


def test_an_edited_planner_gets_no_old_answers(tmp_path, monkeypatch):
    Cache(tmp_path).put(ASKED, 1)
    monkeypatch.setattr(cache_module, "code_digest", lambda: "of other sources")
    cache = Cache(tmp_path)
    assert cache.get(ASKED) is None
    assert "of another version" in cache.told()


def test_the_folder_can_be_chosen(tmp_path, monkeypatch):
    monkeypatch.setenv("TRNCONV_CACHE_DIR", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("TRNCONV_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "trnconv"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert os.fspath(cache_folder()) == os.fspath(tmp_path / ".cache" / "trnconv")


def many_problems(count):
    shapes = [conv_shape((1, 8, 8, 8 + number), (8, 8, 3, 3)) for number in range(count)]
    return [ConvProblem(shape, TRN2) for shape in shapes]


@pytest.mark.slow
def test_prices_of_other_processes_are_those_of_this_one(tmp_path):
    problems = many_problems(9)
    seen = []
    known = Prices(Cache(tmp_path), jobs=2, watch=lambda *counts: seen.append(counts))
    known.prepare([*problems, problems[0]])
    assert seen == [(done, 9) for done in range(1, 10)]
    assert len(files(known.cache)) == 9
    assert [known.of(problem) for problem in problems] == [price(each) for each in problems]


def test_a_problem_without_a_plan_is_refused_where_it_is_asked_for():
    *fine, first = many_problems(9)
    wide = conv_shape((1, 8, 8, 8), (256, 8, 3, 3))
    hopeless = replace(first, shape=wide, budget=1, epilogue=Epilogue(norm=NormEpilogue(1e-6)))
    known = Prices(jobs=2, cores=1)
    known.prepare([*fine, hopeless])
    assert known.of(fine[0]) == price(fine[0], cores=1)
    assert known.ns_of(hopeless) == inf
    with pytest.raises(PlanError, match="norm them afterwards"):
        known.of(hopeless)


def test_few_prices_start_no_processes(monkeypatch):
    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor", None)
    seen = []
    Prices(jobs=2, watch=lambda *counts: seen.append(counts)).prepare(many_problems(3))
    assert seen == []
    with pytest.raises(TypeError):
        Prices(jobs=2).prepare(many_problems(9))


def test_a_price_of_another_process_takes_the_tuned_plans_in_use(tmp_path):
    problem = many_problems(1)[0]
    fastest, slower = (priced.plan for priced in best_candidates(problem, 2))
    winner = TunedPlan(key_of(problem), slower, 1.0, 2.0, 3)
    (tmp_path / "tuned.json").write_text(written("trn2", [winner]))
    with use_tuned(tmp_path / "tuned.json"):
        known = Prices(jobs=2, cores=1)
        known.prepare(many_problems(9))
        assert known.of(problem).plan.plan == slower != fastest


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """A copy of the sources, of which digests are made."""
    root = Path(cache_module.__file__).parent
    for name in ("trnconv", "nkisim"):
        shutil.copytree(root.parent / name, tmp_path / name, ignore=ignore_patterns("__pycache__"))
    monkeypatch.setattr(cache_module, "__file__", str(tmp_path / "trnconv" / "cache.py"))
    return tmp_path


def unnoticed(sources, digest, names):
    """Which files can be edited, one at a time, without another digest."""
    before, found = digest(), []
    for name in names:
        path = sources / name
        text = path.read_text()
        path.write_text(text + "# edited\n")
        found += [name] if digest() == before else []
        path.write_text(text)
    assert digest() == before
    return found


PRICED_BY = [
    "trnconv/problem/limits.py",
    "trnconv/algorithms/search.py",
    "trnconv/algorithms/winograd/cost.py",
    "trnconv/planner/best.py",
    "trnconv/runtime/pricing.py",
    "nkisim/machine.py",
]


def test_an_edited_planner_does_not_get_old_answers(sources):
    digest = cache_module.code_digest.__wrapped__
    assert unnoticed(sources, digest, PRICED_BY) == []


def test_a_plan_of_a_model_follows_from_every_file(sources):
    digest = cache_module.package_digest.__wrapped__
    data = [
        "trnconv/models/data/registry.json",
        "trnconv/traces/data/wan2.1_720p81_decode.json",
        "trnconv/planner/data/trn2_2_wan2.1.json",
        "trnconv/fused_ops/rms_norm/problem.py",
        "trnconv/cli/plan_documents.py",
    ]
    assert unnoticed(sources, digest, [*PRICED_BY, *data]) == []
    (sources / "trnconv" / "__pycache__").mkdir()
    before = digest()
    (sources / "trnconv" / "__pycache__" / "cache.pyc").write_text("compiled")
    assert digest() == before
    (sources / "nkisim" / "another.py").write_text("")
    assert digest() != before


def test_a_cache_says_what_its_answers_follow_from(tmp_path):
    Cache(tmp_path, lambda: {"weather": "fine"}).put(ASKED, 1)
    assert Cache(tmp_path, lambda: {"weather": "fine"}).get(ASKED) == 1
    assert Cache(tmp_path, lambda: {"weather": "rain"}).get(ASKED) is None


HOSTILE = {
    "empty": "",
    "cut": '{"stamp": {"library"',
    "nested": "[" * 200_000,
    "nested, an answer": '{"problem": ' + '{"a": ' * 100_000,
    "a list": "[1, 2]",
    "a number": "17",
    "no text": "\udcff\udcfe",
    "no object inside": '{"stamp": 3, "problem": "x", "answer": []}',
    "a huge number": "9" * 10_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_somebody_else_wrote_is_set_aside(tmp_path, name):
    cache = Cache(tmp_path / "prices")
    cache.put(ASKED, {"ns": 1.5})
    (path,) = files(cache)
    path.write_bytes(HOSTILE[name].encode("utf-8", "surrogateescape"))
    assert cache.get(ASKED) is None
    assert cache.holding().set_aside == 1
    assert "made anew" in cache.told()
    cache.put(ASKED, {"ns": 2.5})
    assert Cache(tmp_path / "prices").get(ASKED) == {"ns": 2.5}


def open_to_all(folder):
    folder.chmod(0o777)


def linked(folder):
    elsewhere = folder.with_name("elsewhere")
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)


def linked_file(folder):
    (path,) = folder.rglob("*.json")
    linked(path)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [(open_to_all, "everybody's to write to"), (linked, "a link"), (linked_file, "a link")],
)
def test_a_folder_that_others_could_fill_is_not_used(tmp_path, spoil, words):
    cache = Cache(tmp_path / "prices")
    cache.put(ASKED, {"ns": 1.5})
    spoil(cache.folder)
    assert cache.get(ASKED) is None
    cache.put(ASKED, {"ns": 2.5})
    assert words in cache.told()
    files = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()]
    held = [json.loads(path.read_text()) for path in files]
    assert [one["answer"] for one in held] == [{"ns": 1.5}]  # nothing was written through it
