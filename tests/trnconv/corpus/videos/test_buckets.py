"""Buckets: which size a video is brought to, and how."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trnconv.corpus.videos.buckets import (
    Buckets,
    Picture,
    Placement,
    Unfit,
    buckets_for,
    frames_within,
)
from trnconv.errors import ShapeError
from trnconv.models import find

WIDE, TALL, SMALL = Picture(720, 1280), Picture(1280, 720), Picture(480, 832)


def buckets(*pictures, lengths=(17, 49, 81), **options):
    return Buckets(pictures, lengths, **options)


@pytest.mark.parametrize(
    ("frames", "length"), [(17, 17), (48, 17), (49, 49), (80, 49), (81, 81), (1000, 81)]
)
def test_a_video_is_cut_to_the_longest_length_it_fills(frames, length):
    assert buckets(WIDE).length(frames) == length


def test_a_video_shorter_than_every_bucket_does_not_fit():
    assert buckets(WIDE).length(16) == Unfit("16 frames: the shortest bucket has 17")


@pytest.mark.parametrize(
    ("video", "placed"),
    [
        (Picture(720, 1280), Placement(WIDE, WIDE, 0, 0)),
        (Picture(1080, 1920), Placement(WIDE, WIDE, 0, 0)),
        (Picture(1920, 1080), Placement(TALL, TALL, 0, 0)),
        (Picture(960, 1280), Placement(WIDE, Picture(960, 1280), 120, 0)),  # 4:3
        (Picture(800, 2000), Placement(WIDE, Picture(720, 1800), 0, 260)),  # 2.5:1, columns cut
        (Picture(1400, 1400), Placement(TALL, Picture(1280, 1280), 0, 280)),
        (Picture(600, 1000), Placement(SMALL, Picture(500, 832), 10, 0)),  # too small for WIDE
    ],
)
def test_cover_scales_and_cuts_and_loses_little(video, placed):
    assert buckets(WIDE, TALL, SMALL).place(video) == placed


def test_of_equal_aspects_the_largest_that_needs_no_enlarging_is_taken():
    half = Picture(360, 640)
    assert buckets(half, WIDE).place(Picture(1080, 1920)).bucket == WIDE
    assert buckets(half, WIDE).place(Picture(700, 1240)).bucket == half


def test_a_small_video_is_enlarged_only_when_that_is_asked_for():
    small = Picture(360, 640)
    reason = "360x640 pixels: no bucket of 720x1280 takes it with fit=cover"
    assert buckets(WIDE).place(small) == Unfit(reason)
    assert buckets(WIDE, enlarge=True).place(small) == Placement(WIDE, WIDE, 0, 0)


def test_crop_never_scales_and_exact_never_cuts():
    full = Picture(1080, 1920)
    assert buckets(WIDE, fit="crop").place(full) == Placement(WIDE, full, 180, 320)
    assert isinstance(buckets(WIDE, fit="crop", enlarge=True).place(SMALL), Unfit)
    assert isinstance(buckets(WIDE, fit="exact").place(full), Unfit)
    assert buckets(WIDE, fit="exact").place(WIDE) == Placement(WIDE, WIDE, 0, 0)


SIDES = st.integers(1, 3000)


# How fast inputs are made up says nothing about the code, only how busy the machine is.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SIDES, SIDES, SIDES, SIDES)
def test_a_bucket_lies_inside_the_scaled_video_and_one_side_is_exact(height, width, rows, columns):
    bucket = Picture(rows, columns)
    placed = buckets(bucket, enlarge=True).place(Picture(height, width))
    assert 0 <= placed.top <= placed.scaled.height - rows
    assert 0 <= placed.left <= placed.scaled.width - columns
    assert placed.scaled.height == rows or placed.scaled.width == columns
    # The aspect is kept to the pixel that rounding up may add.
    assert abs(placed.scaled.height * width - placed.scaled.width * height) < max(height, width)


def test_a_bucket_that_the_model_cannot_take_is_refused():
    wan = find("wan2.1")
    assert buckets_for(wan, [WIDE, WIDE], [81, 17, 81]).lengths == (17, 81)
    with pytest.raises(ShapeError, match=r"80 frames for wan2.1: it takes 4n\+1"):
        buckets_for(wan, [WIDE], [81, 80])
    with pytest.raises(ShapeError, match="height must be a multiple of 8"):
        buckets_for(wan, [Picture(724, 1280)], [81])


def test_frames_within_a_number_follow_the_models_rule():
    wan = find("wan2.1")
    assert [frames_within(wan, n) for n in (1, 4, 5, 80, 81, 84)] == [1, 1, 5, 77, 81, 81]


@pytest.mark.parametrize("text", ["720", "720x", "0x1280", "720x1280x81", "a x b"])
def test_a_size_is_height_times_width(text):
    with pytest.raises(ShapeError, match="write height x width"):
        Picture.parse(text)
    assert str(Picture.parse("720x1280")) == "720x1280"


def test_unknown_fits_and_empty_tables_are_refused():
    with pytest.raises(ShapeError, match="one of cover, crop, exact"):
        buckets(WIDE, fit="stretch")
    with pytest.raises(ShapeError, match="at least one of each"):
        buckets(WIDE, lengths=())
