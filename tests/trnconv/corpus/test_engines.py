"""Engines: where a rank of torchrun begins, and options that belong to another engine."""

import pytest

from trnconv.corpus.engines import Engine
from trnconv.corpus.shards.completion import rotated
from trnconv.errors import TrnconvError, UnsupportedError


def place(monkeypatch, rank, world, **environment):
    for name in ("TRNCONV_RUN_ID", "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"RANK": rank, "WORLD_SIZE": world, **environment}.items():
        monkeypatch.setenv(name, str(value))
    return Engine("torchrun").place()


@pytest.mark.parametrize("world", [1, 2, 3, 11, 16])
def test_every_rank_meets_every_shard_and_begins_at_its_own(monkeypatch, world):
    shards = list(range(48))
    orders = [list(rotated(shards, place(monkeypatch, rank, world).start)) for rank in range(world)]
    assert all(sorted(order) == shards for order in orders)
    assert len({order[0] for order in orders}) == world


def test_a_launch_is_told_from_another_by_its_port_or_its_name(monkeypatch):
    one = [place(monkeypatch, rank, 2, MASTER_PORT=1).launch for rank in (0, 1)]
    assert one[0] == one[1] != ""
    assert place(monkeypatch, 0, 2, MASTER_PORT=2).launch != one[0]
    assert place(monkeypatch, 0, 2, TRNCONV_RUN_ID="x").launch not in ("", one[0])
    assert place(monkeypatch, 0, 2).launch == ""


@pytest.mark.parametrize(("rank", "world"), [("", "2"), ("0", ""), ("3", "2"), ("x", "2")])
def test_an_environment_without_ranks_is_refused(monkeypatch, rank, world):
    with pytest.raises(TrnconvError, match=r"RANK|WORLD_SIZE"):
        place(monkeypatch, rank, world)


def test_other_engines_plan_themselves():
    assert Engine("local").place().rank == 0
    assert Engine("ray", workers=4).place().rank == 0


def test_an_option_of_another_engine_is_refused_not_ignored():
    for options in ({"workers": 2}, {"neuron_cores": 1}, {"address": "auto"}):
        with pytest.raises(UnsupportedError, match="they are Ray's"):
            Engine("torchrun", **options)
    with pytest.raises(UnsupportedError, match="one of local, torchrun, ray"):
        Engine("slurm")
