"""The plan: the same whatever the order of listing, stable when a corpus grows, sealed once."""

import io

import pytest

from trnconv.corpus.shards.plan import extend, read_plan, read_segment
from trnconv.corpus.storage.store import Folder
from trnconv.corpus.videos.clip_order import part_of, sorted_clips
from trnconv.corpus.videos.clips import Clip, clip_of
from trnconv.errors import TrnconvError

pytestmark = pytest.mark.ray


@pytest.fixture
def folder(tmp_path):
    return Folder(str(tmp_path))


def clips(*numbers):
    return [clip_of(f"s3://b/{number}.mp4") for number in numbers]


def placed(plan):
    """Clips by shard, of the whole plan."""
    return {
        shard.number: shard.clips
        for segment in plan.segments
        for shard in read_segment(plan.folder, segment)
    }


def test_clips_are_ordered_by_part_and_id_and_come_once():
    found = clips(*range(0, 500, 2), *reversed(range(500)), *range(100))
    wanted = sorted(set(found), key=lambda clip: (part_of(clip.id), clip.id))
    for in_memory in (10_000, 100):
        rows = [row for table in sorted_clips(found, in_memory) for row in table.to_pylist()]
        assert [row["id"] for row in rows] == [clip.id for clip in wanted]
        assert [row["url"].decode() for row in rows] == [clip.url for clip in wanted]


def test_what_does_not_fit_in_memory_is_planned_the_same(folder, monkeypatch):
    """1000 clips, a few hundred of which are held at a time."""
    found = clips(*range(1000))
    monkeypatch.setattr("trnconv.corpus.videos.clip_order.BATCH", 64)
    spilled = [row for table in sorted_clips(found, 256) for row in table.to_pylist()]
    (whole,) = sorted_clips(reversed(found))
    assert spilled == whole.to_pylist()


def test_shards_do_not_depend_on_the_order_of_listing(folder, tmp_path):
    found = clips(*range(100))
    first, _ = extend(read_plan(folder), found, 7)
    other = Folder(str(tmp_path / "other"))
    second, _ = extend(read_plan(other), reversed(found), 7)
    assert placed(first) == placed(second)
    assert [segment.file for segment in first.segments] == [one.file for one in second.segments]
    assert (first.clips, first.shards, len(placed(first)[0])) == (100, 15, 7)


def test_a_corpus_that_grows_gets_generations_and_old_shards_stay(folder):
    before, _ = extend(read_plan(folder), clips(*range(10)), 3)
    same, _ = extend(read_plan(folder), clips(*range(10)), 3)
    assert same == before
    after, _ = extend(read_plan(folder), clips(*range(5, 14)), 3)
    assert len(after.generations) == 2
    old, new = placed(before), placed(after)
    assert {number: new[number] for number in old} == old
    fresh = {clip for number in new.keys() - old.keys() for clip in new[number]}
    assert fresh == set(clips(10, 11, 12, 13))


def test_segments_have_at_most_a_thousand_shards(folder):
    plan, _ = extend(read_plan(folder), clips(*range(2500)), 1)
    assert [segment.shards for segment in plan.segments] == [1000, 1000, 500]
    assert sorted(placed(plan)) == [*range(2500)]


def test_a_video_that_was_replaced_is_noticed(folder):
    before = [Clip("a", "s3://b/a", "3-x"), Clip("b", "s3://b/b", "4-y"), Clip("c", "s3://b/c")]
    extend(read_plan(folder), before, 2)
    now = [Clip("a", "s3://b/a", "3-z"), Clip("b", "s3://b/b", "4-y"), Clip("c", "s3://b/c", "9-q")]
    plan, changed = extend(read_plan(folder), now, 2)
    assert (changed.count, changed.some, plan.clips) == (1, ("s3://b/a",), 3)


@pytest.mark.parametrize("later", [False, True])
def test_one_id_for_two_videos_is_refused_with_both(folder, later):
    one, other = Clip("a", "s3://1"), Clip("a", "s3://2")
    if later:
        extend(read_plan(folder), [one], 2)
    with pytest.raises(TrnconvError, match=r"clip id a has two videos, s3://1 and s3://2"):
        extend(read_plan(folder), [other] if later else [one, other], 2)


def test_two_planners_seal_one_plan(folder):
    empty = read_plan(folder)
    extend(empty, clips(1, 2), 2)
    with pytest.raises(TrnconvError, match="another process has planned at the same time"):
        extend(empty, clips(3, 4), 2)
    assert {clip for of in placed(read_plan(folder)).values() for clip in of} == set(clips(1, 2))


def test_names_that_are_no_unicode_come_back(folder):
    clip = clip_of("/corpus/\udcff\udcfe.mp4")
    plan, _ = extend(read_plan(folder), [clip], 1)
    assert placed(plan) == {0: (clip,)}


def _parquet_of_something_else():
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = io.BytesIO()
    pq.write_table(pa.table({"x": [1]}), data)
    return data.getvalue()


@pytest.mark.parametrize("name", ["plan/00000.json", "segment"])
@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"[" * 100_000, b"{}", b'{"number": "0"}', "other", "gone"]
)
def test_a_plan_that_is_cut_or_something_else_is_refused_in_words(folder, name, content):
    plan, _ = extend(read_plan(folder), clips(1, 2), 2)
    file = plan.segments[0].file if name == "segment" else name
    if content == "gone":
        folder.remove(file)
        if name != "segment":
            assert read_plan(folder).segments == ()
            return
    else:
        folder.write(file, _parquet_of_something_else() if content == "other" else content)
    read_segment.cache_clear()
    with pytest.raises(TrnconvError, match="is no part of a plan"):
        placed(read_plan(folder))
