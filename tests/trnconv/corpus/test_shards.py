"""Assignment of clips to shards: deterministic, and stable when a corpus grows."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trnconv.corpus.clips import Clip
from trnconv.corpus.shards import Shard, assigned


def clips(*ids):
    return [Clip(f"{number:04}", f"s3://b/{number}") for number in ids]


def test_clips_go_into_shards_in_the_order_of_ids():
    shards = assigned([], clips(4, 2, 0, 1, 3), 2)
    assert [shard.name for shard in shards] == ["000000", "000001", "000002"]
    assert [[clip.id for clip in shard.clips] for shard in shards] == [
        ["0000", "0001"],
        ["0002", "0003"],
        ["0004"],
    ]


IDS = st.sets(st.integers(0, 999), max_size=40)


# How fast inputs are made up says nothing about the code, only how busy the machine is.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(IDS, IDS, st.integers(1, 7), st.randoms())
def test_what_is_assigned_stays_and_every_clip_has_one_place(first, later, size, random):
    before = assigned([], clips(*first), size)
    listed = clips(*(first | later))
    random.shuffle(listed)
    after = assigned(before, listed, size)
    assert after[: len(before)] == before
    placed = [clip for shard in after for clip in shard.clips]
    assert sorted(placed) == clips(*sorted(first | later))
    assert assigned(after, listed, size) == after


def test_a_line_of_the_plan_is_read_back():
    shard = Shard("000012", tuple(clips(5, 6)))
    assert Shard.from_json(shard.to_json()) == shard
    assert "\n" not in shard.to_json()
