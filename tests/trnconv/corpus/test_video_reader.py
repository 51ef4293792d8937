"""Folders, listings and videos, on files made here: what is found, read, and set aside."""

import numpy as np
import pytest

from corpus_videos import spoil, write_corpus, write_video
from trnconv.corpus.buckets import Buckets, Picture
from trnconv.corpus.clips import clip_of
from trnconv.corpus.listing import list_clips
from trnconv.corpus.store import Folder
from trnconv.corpus.video_reader import BadVideoError, read_video
from trnconv.errors import TrnconvError

pytestmark = pytest.mark.ray

SQUARE = Buckets((Picture(64, 64),), (9, 17))


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_a_folder_gives_back_what_was_put_and_nothing_else(kind, tmp_path):
    folder = Folder(str(tmp_path / "out") if kind == "local" else "memory://folder-test/out")
    assert (folder.read("a/b"), folder.size("a/b"), folder.names("a")) == (None, None, [])
    folder.write("a/b", b"one")
    folder.write("a/c", b"")
    folder.write("a/b", b"three")
    assert (folder.read("a/b"), folder.size("a/b"), folder.read("a/c")) == (b"three", 5, b"")
    assert folder.names("a") == ["a/b", "a/c"]


def test_a_writer_that_is_killed_leaves_no_file_and_its_rest_goes(tmp_path, monkeypatch):
    folder = Folder(str(tmp_path))

    def killed(handle):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", killed)
        with pytest.raises(KeyboardInterrupt):
            folder.write("shards/0", b"half")
    assert folder.read("shards/0") is None
    assert folder.names("shards") == []
    assert len(list((tmp_path / "shards").iterdir())) == 1
    folder.write("shards/0", b"whole")
    assert [path.name for path in (tmp_path / "shards").iterdir()] == ["0"]


def test_files_folders_patterns_and_lists_name_the_same_clips(tmp_path):
    videos = tmp_path / "videos"
    (videos / "deep").mkdir(parents=True)
    paths = [videos / "a.mp4", videos / "b.MKV", videos / "deep" / "c.webm"]
    for path in [*paths, videos / "notes.md"]:
        path.write_bytes(b"")
    wanted = tuple(sorted(clip_of(str(path)) for path in paths))
    listed = tmp_path / "all.txt"
    listed.write_text("# the corpus\n" + "\n".join(map(str, paths)) + "\n\n")
    assert list_clips([str(videos)]) == wanted
    assert list_clips([str(listed)]) == wanted
    assert list_clips([str(videos / "*.*p4"), str(paths[1]), str(videos / "deep")]) == wanted


def test_a_listing_of_a_store_has_its_protocol():
    store = Folder("memory://listing-test/clips")
    store.write("x.mp4", b"")
    (clip,) = list_clips(["memory://listing-test/clips"])
    assert clip == clip_of("memory:///listing-test/clips/x.mp4")
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
    video = read_video(str(tmp_path / "v.mp4"), SQUARE)
    assert (video.bucket, video.pixels.shape, video.pixels.dtype) == (
        "64x64x9",
        (9, 64, 64, 3),
        np.uint8,
    )


def test_pixels_are_those_that_were_written_but_for_the_codec(tmp_path):
    """Blocks of 8 x 8 pixels, moving by one block a frame; mpeg4 at its default quality."""
    write_video(tmp_path / "v.mp4", frames=9, seed=3)
    blocks = np.random.default_rng(3).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    read = read_video(str(tmp_path / "v.mp4"), SQUARE).pixels.astype(int)
    for number in (0, 8):
        middles = read[number, 4::8, 4::8]
        written = np.roll(blocks, number, axis=1).astype(int)
        others = np.roll(blocks, number + 4, axis=1).astype(int)
        assert np.abs(middles - written).mean() < np.abs(middles - others).mean() / 4


def test_a_wide_video_is_scaled_and_cut_in_the_middle(tmp_path):
    write_video(tmp_path / "v.mp4", height=128, width=256)
    full = read_video(str(tmp_path / "v.mp4"), Buckets((Picture(128, 256),), (9,)))
    cut = read_video(str(tmp_path / "v.mp4"), SQUARE)
    middle = full.pixels[:, :, 64:192].reshape(9, 64, 2, 64, 2, 3).mean(axis=(2, 4))
    assert np.abs(middle - cut.pixels).mean() < 8  # of 255; the filters differ at edges of blocks


def test_a_rate_picks_frames_by_their_times(tmp_path):
    write_video(tmp_path / "v.mp4", frames=17, fps=32)
    every = read_video(str(tmp_path / "v.mp4"), SQUARE).pixels
    half = read_video(str(tmp_path / "v.mp4"), SQUARE, fps=16).pixels
    assert (len(every), len(half)) == (17, 9)
    np.testing.assert_array_equal(half, every[::2])


@pytest.mark.parametrize("way", range(5))
def test_a_spoilt_video_is_bad_with_a_reason(tmp_path, way):
    (path,) = write_corpus(tmp_path, 1)
    spoil(path, way)
    with pytest.raises(BadVideoError, match=r"not decodable: .+|frame 0 is damaged|0 frames"):
        read_video(str(path), SQUARE)


def test_any_cut_of_a_file_is_read_or_bad_and_nothing_else(tmp_path):
    """Broken files make demultiplexers seek to nowhere; none of that is our fault."""
    (path,) = write_corpus(tmp_path, 1)
    whole, bad = path.read_bytes(), 0
    for size in range(0, len(whole), len(whole) // 60):
        path.write_bytes(whole[:size])
        try:
            read_video(str(path), SQUARE)
        except BadVideoError:
            bad += 1
    assert bad > 50


def test_files_that_are_no_fit_are_bad_too(tmp_path):
    write_video(tmp_path / "short.mp4", frames=5)
    write_video(tmp_path / "small.mp4", height=32, width=32)
    with pytest.raises(BadVideoError, match="5 frames: the shortest bucket has 9"):
        read_video(str(tmp_path / "short.mp4"), SQUARE)
    with pytest.raises(BadVideoError, match="32x32 pixels: no bucket of 64x64"):
        read_video(str(tmp_path / "small.mp4"), SQUARE)
    with pytest.raises(BadVideoError, match="no such file"):
        read_video(str(tmp_path / "gone.mp4"), SQUARE)


def test_a_fault_of_the_disk_is_not_the_clips(tmp_path):
    (tmp_path / "folder.mp4").mkdir()
    with pytest.raises(TrnconvError, match="run the same command again") as refusal:
        read_video(str(tmp_path / "folder.mp4"), SQUARE)
    assert not isinstance(refusal.value, BadVideoError)
