"""Listings and videos, on files made here: what is found, read, and set aside."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from benchmarks.corpus_store import StandIn
from corpus_videos import write_corpus, write_video
from http_videos import HttpVideos, free_port
from trnconv.corpus.storage.store import Folder
from trnconv.corpus.videos import video_file
from trnconv.corpus.videos.buckets import Buckets, Picture
from trnconv.corpus.videos.clips import Clip, clip_of
from trnconv.corpus.videos.listing import list_clips
from trnconv.corpus.videos.video_reader import BadVideoError, VideoRequest, read_windows
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


def write_marked(path, *, matrix=None, aspect=None, options=None):
    """9 frames whose quarters are black, red, green and blue, with what is said of them."""
    import av

    pixels = np.zeros((64, 96, 3), np.uint8)
    pixels[:32, 48:, 0] = pixels[32:, :48, 1] = pixels[32:, 48:, 2] = 255
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264" if options else "mpeg4", rate=16)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        stream.options = options or {}
        if aspect:
            stream.codec_context.sample_aspect_ratio = Fraction(aspect)
        if matrix:
            stream.set_display_matrix((*matrix[:2], 0, *matrix[2:], 0, 0, 0, 1 << 30))
        for _ in range(9):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    return path


def corners(pixels):
    """Which of black, red, green and blue is at the top left, top right, and below."""
    frame = pixels[0].astype(int)
    height, width = frame.shape[:2]
    names = ""
    for row, column in ((1, 1), (1, 3), (3, 1), (3, 3)):
        color = frame[row * height // 4, column * width // 4]
        names += "krgb"[0 if color.max() < 100 else 1 + int(color.argmax())]
    return names


WHOLE = 1 << 16
ITERATIONS = {
    (WHOLE, 0, 0, WHOLE): ("krgb", (64, 96)),
    (-WHOLE, 0, 0, WHOLE): ("rkbg", (64, 96)),
    (WHOLE, 0, 0, -WHOLE): ("gbkr", (64, 96)),
    (-WHOLE, 0, 0, -WHOLE): ("bgrk", (64, 96)),
    (0, WHOLE, WHOLE, 0): ("kgrb", (96, 64)),
    (0, WHOLE, -WHOLE, 0): ("gkbr", (96, 64)),
    (0, -WHOLE, WHOLE, 0): ("rbkg", (96, 64)),
    (0, -WHOLE, -WHOLE, 0): ("brgk", (96, 64)),
}


@pytest.mark.parametrize("matrix", ITERATIONS)
def test_a_video_is_turned_and_mirrored_as_its_matrix_says(tmp_path, matrix):
    """x' = a x + c y, y' = b x + d y, with y downwards."""
    path = write_marked(tmp_path / "v.mp4", matrix=matrix)
    names, size = ITERATIONS[matrix]
    pixels = read_pixels(path, Buckets((Picture(64, 96), Picture(96, 64)), (9,), fit="exact"))
    assert (corners(pixels), pixels.shape[1:3]) == (names, size)


@pytest.mark.parametrize(
    "matrix", [(0, 0, 0, 0), (46340, -46340, 46340, 46340), (WHOLE, 1, 0, WHOLE), (WHOLE, 0, 0, 0)]
)
def test_a_matrix_that_does_anything_else_is_refused(tmp_path, matrix):
    path = write_marked(tmp_path / "v.mp4", matrix=matrix)
    with pytest.raises(BadVideoError, match="its display matrix does more"):
        read_pixels(path, Buckets((Picture(64, 96), Picture(96, 64)), (9,)))


def test_pixels_that_are_not_square_are_made_so(tmp_path):
    buckets = Buckets((Picture(64, 96), Picture(64, 192), Picture(64, 48)), (9,), fit="exact")
    for aspect, width in (("1", 96), ("2", 192), ("1/2", 48)):
        path = write_marked(tmp_path / f"{width}.mp4", aspect=aspect)
        pixels = read_pixels(path, buckets)
        assert (corners(pixels), pixels.shape[2]) == ("krgb", width)
    path = write_marked(tmp_path / "turned.mp4", aspect="2", matrix=(0, WHOLE, -WHOLE, 0))
    assert read_pixels(path, Buckets((Picture(192, 64),), (9,), fit="exact")).shape[1] == 192
    path = write_marked(tmp_path / "strange.mp4", aspect="20")
    with pytest.raises(BadVideoError, match="pixels 20 times as wide as high"):
        read_pixels(path, buckets)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("interlaced=1", "frame 0 is interlaced"),
        ("transfer=smpte2084:colorprim=bt2020:colormatrix=bt2020nc", r"frame 0 is HDR \(PQ\)"),
        ("transfer=arib-std-b67:colorprim=bt2020:colormatrix=bt2020nc", r"is HDR \(HLG\)"),
    ],
)
def test_what_rgb_cannot_show_is_refused(tmp_path, options, words):
    flags = {"flags": "+ildct+ilme"} if "interlaced" in options else {}
    path = write_marked(tmp_path / "v.mp4", options={"x264-params": options, **flags})
    with pytest.raises(BadVideoError, match=words):
        read_pixels(path, Buckets((Picture(64, 96),), (5,)))


def test_every_key_of_s3_that_is_called_like_a_video_is_listed():
    keys = ("clips/a.mp4", "clips//double.mp4", "clips/a/./b.mp4", "clips/../up.mp4")
    with StandIn() as store:
        for key in (*keys, "clips/notes.txt", "clips/folder.mp4/", "clipsandmore/c.mp4"):
            store.put(key, b"x")
        store.requests.clear()
        found = list_clips([f"{store.url}/clips/"])
        assert {clip.url for clip in found} == {f"{store.url}/{key}" for key in keys}
        assert all(clip.version.startswith("1-") for clip in found)
        assert len(list_clips([store.url])) == 5
        with pytest.raises(TrnconvError, match="no such file, folder or prefix"):
            list_clips([f"{store.url}/nothing"])


def test_a_store_that_does_not_answer_has_no_missing_folders(monkeypatch):
    dead = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setattr(video_file, "WAITS_S", ())
    with pytest.raises(TrnconvError, match="unreachable"):
        list_clips([f"{dead}/all.txt"])
    assert list_clips([f"{dead}/a.mp4"]) == (clip_of(f"{dead}/a.mp4"),)
    with HttpVideos(b"a.mp4\nb.mp4\n") as web:
        assert len(list_clips([f"{web.url}/nolength.txt"])) == 2

    def fails(*_, **__):
        raise RuntimeError("no route")

    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.exists", fails)
    with pytest.raises(TrnconvError, match=r"listing memory://x: RuntimeError: no route"):
        list_clips(["memory://x"])


@pytest.mark.parametrize("source", ["ftp://host/clips", "github://x/y", "nothing://x"])
def test_a_protocol_that_no_store_is_for_is_refused_in_words(source):
    with pytest.raises(TrnconvError, match=r"cannot be opened by an address alone|no store is"):
        list_clips([source])
