"""Who plans: rank 0, and whoever waits for one that does not come; never an earlier launch."""

from dataclasses import replace

import pytest

from trnconv.corpus import Buckets, EncoderSettings, Job, Picture, planner
from trnconv.corpus.jobs.torchrun import Rank
from trnconv.corpus.planner import Mark, planned
from trnconv.corpus.storage.document import as_document
from trnconv.corpus.storage.leases import claim
from trnconv.corpus.storage.process import started_at

pytestmark = pytest.mark.ray

MARK = "plan/launches/port.json"


@pytest.fixture
def job(tmp_path):
    settings = EncoderSettings(model="wan2.1", reduced=True)
    return Job(out=str(tmp_path), encoder=settings, buckets=Buckets((Picture(32, 32),), (5, 9)))


def clips(job, tmp_path, count, rank):
    """What is planned of so many addresses, by this rank of two."""
    listed = tmp_path / "all.txt"
    listed.write_text("\n".join(f"/videos/{number}.mp4" for number in range(count)))
    return planned(job, [str(listed)], 2, Rank(rank, 2, "port")).plan.clips


def test_a_rank_takes_the_plan_of_its_own_launch(job, tmp_path):
    assert clips(job, tmp_path, 3, rank=0) == 3
    assert clips(job, tmp_path, 5, rank=1) == 3


def test_the_mark_of_an_earlier_launch_at_the_same_port_is_none(job, tmp_path, monkeypatch):
    """With one it would look at the plan of then, find it done, and end."""
    monkeypatch.setattr(planner, "_RANK_0_S", 0.0)
    clips(job, tmp_path, 3, rank=0)
    job.folder.write(MARK, as_document(Mark(started_at() - 1)))
    assert clips(job, tmp_path, 5, rank=1) == 5
    assert clips(job, tmp_path, 7, rank=1) == 5  # it has left a mark itself


def test_a_rank_that_plans_is_waited_for_however_long(job, tmp_path, monkeypatch):
    monkeypatch.setattr(planner, "_RANK_0_S", 0.0)
    monkeypatch.setattr(planner, "_PATIENCE_S", 0.7)
    with (
        claim(job.folder, "plan", "rank 0").held(),
        pytest.raises(Exception, match="no plan after"),
    ):
        clips(job, tmp_path, 3, rank=1)


def test_ranks_without_a_name_of_their_launch_are_told_from_an_earlier_one(
    job, tmp_path, monkeypatch
):
    monkeypatch.setattr(planner, "_RANK_0_S", 0.0)
    listed = tmp_path / "all.txt"
    listed.write_text("/videos/0.mp4")
    unnamed = Rank(0, 2)
    planned(job, [str(listed)], 2, unnamed)
    job.folder.write("plan/launches/unnamed.json", as_document(Mark(0.0)))
    listed.write_text("/videos/1.mp4")
    assert planned(job, [str(listed)], 2, replace(unnamed, rank=1)).plan.clips == 2
