"""The last clips of a process: a few may be missing, many mean that a store is broken."""

import pytest

from trnconv.corpus.videos.reasons import is_for_a_later_run, is_named, kind_of, once_more
from trnconv.corpus.videos.unread import LAST, Unread
from trnconv.errors import TrnconvError

MISSING, REFUSED, SPOILT = "missing: no such file", "unreachable: HTTP status 403", "not decodable"


def noted(unread, *reasons):
    for number, reason in enumerate(reasons):
        unread.note(f"http://host/{number}.mp4", reason)
    return unread


def test_a_store_that_answers_nothing_is_noticed_after_eight_clips():
    unread = noted(Unread(0.5), *[REFUSED] * 7)
    with pytest.raises(TrnconvError, match=r"8 of the last 8 clips .* \(8 unreachable\); .*0\.mp4"):
        noted(unread, REFUSED)


def test_one_that_stops_to_answer_is_noticed_before_its_share_is_discarded():
    unread = noted(Unread(0.5), *[""] * LAST, *[REFUSED] * (LAST // 2))
    with pytest.raises(TrnconvError, match="26 of the last 50"):
        noted(unread, REFUSED)


def test_missing_files_count_with_enough_others_to_compare_with():
    noted(Unread(0.5), *[MISSING] * 9).require_few()
    with pytest.raises(TrnconvError, match="10 missing"):
        noted(Unread(0.5), *[MISSING] * 10).require_few()
    with pytest.raises(TrnconvError, match="50 missing"):
        noted(Unread(0.5), *[MISSING] * LAST)


def test_one_that_a_store_cannot_give_is_no_sign_of_a_broken_store():
    noted(Unread(0.5), "unreadable: archived").require_few()


def test_a_shard_of_one_clip_that_nobody_could_reach_is_not_committed():
    with pytest.raises(TrnconvError, match="1 of the last 1"):
        noted(Unread(0.5), REFUSED).require_few()


def test_videos_that_are_spoilt_and_shares_that_are_allowed_stop_nothing():
    noted(Unread(0.5), *[SPOILT] * 100).require_few()
    noted(Unread(0.5), *["", REFUSED] * 100).require_few()  # at no time more than half
    noted(Unread(1.0), *[REFUSED] * 100).require_few()


def test_reasons_say_who_tries_again():
    assert [kind_of(reason) for reason in (MISSING, REFUSED, "not decodable: x")] == [
        "missing",
        "unreachable",
        "video",
    ]
    late = "too slow: no end after 3 s"
    assert once_more(late, "") == once_more(late, MISSING) == late
    twice = once_more(late, late)
    assert twice == f"{late}, in 2 runs"
    thrice = once_more(late, twice)
    assert [is_for_a_later_run(reason, 3) for reason in (late, twice, thrice)] == [
        True,
        True,
        False,
    ]
    assert is_for_a_later_run(REFUSED, 3)
    assert not is_for_a_later_run(MISSING, 3)
    assert is_named(MISSING, ("missing",))
    assert is_named(MISSING, ("all",))
    assert not is_named(MISSING, ("no such",))
