"""Clips as rows of Ray Data: what is read is what was written."""

import numpy as np
import pytest

from trnconv.corpus import Picture
from trnconv.corpus.engines.clip_row import ClipRow
from trnconv.corpus.videos.decoder import DecodedVideo
from trnconv.corpus.videos.video_reader import BadVideoError, Window

pytestmark = pytest.mark.ray


def test_windows_of_unequal_length_come_back_and_can_be_written_to():
    rng = np.random.default_rng(0)
    windows = [Window(frames, Picture(4, 6), start) for frames, start in ((3, 0.0), (2, 0.25))]
    pixels = [rng.integers(0, 256, (one.frames, 4, 6, 3), dtype=np.uint8) for one in windows]
    video = DecodedVideo(tuple(zip(windows, pixels, strict=True)), 12.5, 99, "a" * 64)
    row = ClipRow.from_table(ClipRow(7, "x", video).to_table())
    assert (row.shard, row.id, row.refusal) == (7, "x", "")
    assert (row.video.fps, row.video.source_bytes) == (12.5, 99)
    assert row.video.source_sha256 == "a" * 64
    assert [window for window, _ in row.video.windows] == windows
    for (_, got), wanted in zip(row.video.windows, pixels, strict=True):
        np.testing.assert_array_equal(got, wanted)
        assert got.flags.writeable


def test_bad_videos_and_refusals_are_rows_of_the_same_type():
    video = DecodedVideo(
        ((Window(1, Picture(2, 2), 0.0), np.zeros((1, 2, 2, 3), np.uint8)),), 1.0, 1, ""
    )
    tables = [
        ClipRow(1, "good", video).to_table(),
        ClipRow(1, "bad", BadVideoError("too short")).to_table(),
        ClipRow(refusal="no disk").to_table(),
    ]
    assert tables[0].schema == tables[1].schema == tables[2].schema
    assert str(ClipRow.from_table(tables[1]).video) == "too short"
    assert ClipRow.from_table(tables[2]).refusal == "no disk"
