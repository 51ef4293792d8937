"""Listings and videos, on files made here: what is found, read, and set aside."""

from dataclasses import replace

import numpy as np
import pytest

from corpus_videos import write_corpus, write_video
from trnconv.corpus.buckets import Buckets, Picture
from trnconv.corpus.clips import Clip, clip_of
from trnconv.corpus.listing import list_clips
from trnconv.corpus.store import Folder
from trnconv.corpus.video_reader import BadVideoError, VideoRequest, read_windows
from trnconv.errors import TrnconvError

pytestmark = pytest.mark.ray

SQUARE = Buckets((Picture(64, 64),), (9, 17))


def read_pixels(path, buckets, fps=None):
    """The one window of a file, decoded in this process."""
    frames = []
    with open(path, "rb") as file:  # noqa: PTH123 - as the decoder has it
        (window,), _ = read_windows(file, VideoRequest(buckets, fps), frames.append)
    return np.stack(frames[: window.frames])


def test_files_folders_patterns_and_lists_name_the_same_clips(tmp_path):
    videos = tmp_path / "videos"
    (videos / "deep").mkdir(parents=True)
    paths = [videos / "a.mp4", videos / "b.MKV", videos / "deep" / "c.webm"]
    for path in [*paths, videos / "notes.md"]:
        path.write_bytes(b"")
    wanted = tuple(sorted(clip_of(str(path)) for path in paths))
    listed = tmp_path / "all.txt"
    listed.write_text("# the corpus\n" + "\n".join(map(str, paths)) + "\n\n")
    assert unversioned(list_clips([str(videos)])) == wanted
    assert list_clips([str(listed)]) == wanted
    named = [str(videos / "*.*p4"), str(paths[1]), str(videos / "deep")]
    assert unversioned(list_clips(named)) == wanted


def unversioned(clips):
    """Clips as lists know them, without size and time; a folder's have both."""
    assert all(clip.version for clip in clips)
    return tuple(replace(clip, version="") for clip in clips)


def test_a_list_of_objects_says_more_of_a_clip(tmp_path):
    listed = tmp_path / "all.jsonl"
    listed.write_text(
        '{"url": "s3://b/x.mp4", "caption": "a cat", "score": 1}\n{"url": "s3://b/y", "id": "y"}\n'
    )
    first, second = sorted(list_clips([str(listed)]), key=lambda clip: clip.url)
    assert (first.id, first.note) == (
        clip_of("s3://b/x.mp4").id,
        '{"caption": "a cat", "score": 1}',
    )
    assert second == Clip("y", "s3://b/y")


@pytest.mark.parametrize(
    "line", ["[" * 5000, "{", "[]", "{}", '{"url": 3}', '{"url": "x", "id": 7}', '{"url": ""}']
)
def test_a_line_that_is_no_clip_is_refused_in_words(tmp_path, line):
    listed = tmp_path / "all.jsonl"
    listed.write_text(line + "\n")
    with pytest.raises(TrnconvError, match=r"is no JSON|has no `url`|an id is text"):
        list_clips([str(listed)])


def test_a_listing_of_a_store_has_its_protocol():
    store = Folder("memory://listing-test/clips")
    store.write("x.mp4", b"")
    (clip,) = list_clips(["memory://listing-test/clips"])
    assert replace(clip, version="") == clip_of("memory:///listing-test/clips/x.mp4")
    assert list_clips(["memory://listing-test/clips/*.mp4"]) == (clip,)


def test_what_does_not_exist_or_holds_no_video_is_refused(tmp_path):
    with pytest.raises(TrnconvError, match="no such file, folder or prefix"):
        list_clips([str(tmp_path / "nowhere")])
    with pytest.raises(TrnconvError, match="no video in"):
        list_clips([str(tmp_path)])
    with pytest.raises(TrnconvError, match="no such file"):
        list_clips([str(tmp_path / "nowhere.txt")])


def test_a_video_is_read_to_the_length_of_its_bucket(tmp_path):
    write_video(tmp_path / "v.mp4", frames=14)
    pixels = read_pixels(tmp_path / "v.mp4", SQUARE)
    assert (pixels.shape, pixels.dtype) == ((9, 64, 64, 3), np.uint8)


def test_pixels_are_those_that_were_written_but_for_the_codec(tmp_path):
    """Blocks of 8 x 8 pixels, moving by one block a frame; mpeg4 at its default quality."""
    write_video(tmp_path / "v.mp4", frames=9, seed=3)
    blocks = np.random.default_rng(3).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    read = read_pixels(tmp_path / "v.mp4", SQUARE).astype(int)
    for number in (0, 8):
        middles = read[number, 4::8, 4::8]
        written = np.roll(blocks, number, axis=1).astype(int)
        others = np.roll(blocks, number + 4, axis=1).astype(int)
        assert np.abs(middles - written).mean() < np.abs(middles - others).mean() / 4


def test_a_wide_video_is_scaled_and_cut_in_the_middle(tmp_path):
    write_video(tmp_path / "v.mp4", height=128, width=256)
    full = read_pixels(tmp_path / "v.mp4", Buckets((Picture(128, 256),), (9,)))
    cut = read_pixels(tmp_path / "v.mp4", SQUARE)
    middle = full[:, :, 64:192].reshape(9, 64, 2, 64, 2, 3).mean(axis=(2, 4))
    assert np.abs(middle - cut).mean() < 8  # of 255; the filters differ at edges of blocks


def test_a_rate_picks_frames_by_their_times(tmp_path):
    write_video(tmp_path / "v.mp4", frames=17, fps=32)
    every = read_pixels(tmp_path / "v.mp4", SQUARE)
    half = read_pixels(tmp_path / "v.mp4", SQUARE, fps=16)
    assert (len(every), len(half)) == (17, 9)
    np.testing.assert_array_equal(half, every[::2])


def test_any_cut_of_a_file_is_read_or_bad_and_nothing_else(tmp_path):
    """Broken files make demultiplexers seek to nowhere; none of that is our fault."""
    (path,) = write_corpus(tmp_path, 1)
    whole, bad = path.read_bytes(), 0
    for size in range(0, len(whole), len(whole) // 60):
        path.write_bytes(whole[:size])
        try:
            read_pixels(path, SQUARE)
        except BadVideoError:
            bad += 1
    assert bad > 50


def test_files_that_are_no_fit_are_bad_too(tmp_path):
    write_video(tmp_path / "short.mp4", frames=5)
    write_video(tmp_path / "small.mp4", height=32, width=32)
    with pytest.raises(BadVideoError, match="5 frames: the shortest bucket has 9"):
        read_pixels(tmp_path / "short.mp4", SQUARE)
    with pytest.raises(BadVideoError, match="32x32 pixels: no bucket of 64x64"):
        read_pixels(tmp_path / "small.mp4", SQUARE)
