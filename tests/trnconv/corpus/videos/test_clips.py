"""Clips: ids follow from addresses, lists are read, and order does not matter."""

import hashlib

import pytest

from trnconv.corpus.videos.clips import Clip, clip_of, clip_of_line, in_order
from trnconv.errors import TrnconvError


def test_an_id_is_a_hash_of_the_address_and_of_nothing_else():
    url = "s3://bucket/a/b.mp4"
    assert clip_of(url) == Clip(hashlib.sha256(url.encode()).hexdigest()[:20], url)


def test_a_local_path_is_made_absolute_before_it_is_hashed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert clip_of("a.mp4") == clip_of(str(tmp_path / "a.mp4"))
    assert clip_of_line("x\ta.mp4") == Clip("x", str(tmp_path / "a.mp4"))


def test_a_line_may_name_its_clip():
    assert clip_of_line("day-1_002\tgs://b/c.mkv") == Clip("day-1_002", "gs://b/c.mkv")
    assert clip_of_line("gs://b/c.mkv") == clip_of("gs://b/c.mkv")


@pytest.mark.parametrize("name", ["a.b", "", "a b", "ä"])
def test_an_id_that_cannot_name_a_tensor_is_refused(name):
    with pytest.raises(TrnconvError, match="letters, digits, - and _ only"):
        clip_of_line(f"{name}\tgs://b/c.mkv")


def test_clips_come_once_and_in_the_order_of_ids():
    clips = [Clip("c", "3"), Clip("a", "1"), Clip("c", "3"), Clip("b", "2")]
    assert in_order(clips) == (Clip("a", "1"), Clip("b", "2"), Clip("c", "3"))
    assert in_order(reversed(clips)) == in_order(clips)


def test_one_id_for_two_videos_is_refused_with_both():
    with pytest.raises(TrnconvError, match=r"clip id a has two videos, s3://1 and s3://2"):
        in_order([Clip("a", "s3://1"), Clip("a", "s3://2")])
