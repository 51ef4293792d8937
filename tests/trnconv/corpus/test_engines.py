"""Engines: what a rank of torchrun answers for, and options that belong to another engine."""

import pytest

from trnconv.corpus.clips import Clip
from trnconv.corpus.engines import Engine
from trnconv.corpus.shards import assigned
from trnconv.errors import TrnconvError, UnsupportedError

SHARDS = assigned([], [Clip(f"{number:02}", "s3://b") for number in range(11)], 1)


def share(monkeypatch, rank, world, shards=SHARDS):
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", str(world))
    return Engine("torchrun").share(shards)


@pytest.mark.parametrize("world", [1, 2, 3, 11, 16])
def test_ranks_share_all_shards_and_none_twice(monkeypatch, world):
    shares = [share(monkeypatch, rank, world) for rank in range(world)]
    assert sorted(one.name for each in shares for one in each) == [one.name for one in SHARDS]
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_share_does_not_depend_on_what_is_done(monkeypatch):
    left = SHARDS[3:]
    assert share(monkeypatch, 1, 3, left) == [
        one for one in share(monkeypatch, 1, 3) if one in left
    ]


@pytest.mark.parametrize(("rank", "world"), [("", "2"), ("0", ""), ("3", "2"), ("x", "2")])
def test_an_environment_without_ranks_is_refused(monkeypatch, rank, world):
    with pytest.raises(TrnconvError, match=r"RANK|WORLD_SIZE"):
        share(monkeypatch, rank, world)


def test_other_engines_answer_for_everything():
    assert Engine("local").share(SHARDS) == SHARDS
    assert Engine("ray", workers=4).share(SHARDS) == SHARDS


def test_an_option_of_another_engine_is_refused_not_ignored():
    for options in ({"workers": 2}, {"neuron_cores": 1}, {"address": "auto"}):
        with pytest.raises(UnsupportedError, match="they are Ray's"):
            Engine("torchrun", **options)
    with pytest.raises(UnsupportedError, match="one of local, torchrun, ray"):
        Engine("slurm")
