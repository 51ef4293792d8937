"""Eighty kinds of file below one folder: those of `hostile_videos`, and videos that are odd.

`write_odd` makes them all; what has to be encoded is in `SOUND`, and why the others are not in
`REASONS`.
"""

import os
import socket
from fractions import Fraction

import numpy as np

import hostile_videos
from corpus_videos import write_video

WHOLE, ONE = 1 << 16, 1 << 30  # of a display matrix
HALF = WHOLE // 2
INTERLACED = {"flags": "+ildct+ilme", "x264-params": "interlaced=1"}
PQ = {"x264-params": "transfer=smpte2084:colorprim=bt2020:colormatrix=bt2020nc"}
HLG = {"x264-params": "transfer=arib-std-b67:colorprim=bt2020:colormatrix=bt2020nc"}
# What is said to the encoder, by kind.
_ENCODED = {
    "h264": {"codec": "libx264"},
    "vp9": {"codec": "libvpx-vp9", "container": "webm"},
    "mpeg1": {"codec": "mpeg1video", "rate": 25, "container": "mpeg"},
    "mpeg2_stream": {"codec": "mpeg2video", "rate": 25, "container": "mpegts"},
    "mjpeg": {"codec": "mjpeg", "pixels": "yuvj444p", "container": "avi"},
    "ten_bits": {"codec": "libx264", "pixels": "yuv444p10le"},
    "grey": {"codec": "ffv1", "pixels": "gray16le", "container": "matroska"},
    "transparent": {"codec": "libvpx-vp9", "pixels": "yuva420p", "container": "webm"},
    "odd_sides": {"codec": "libx264", "pixels": "yuv444p", "size": (53, 67)},
    "wide": {"size": (32, 512)},
    "tall": {"size": (96, 48)},
    "long": {"frames": 60},
    "uneven_times": {"codec": "libx264", "times": 20, "container": "matroska"},
    "bt709": {"codec": "libx264", "options": {"x264-params": "colormatrix=bt709"}},
    "anamorphic": {"codec": "libx264", "aspect": "2"},
    "anamorphic_tall": {"codec": "libx264", "aspect": "1/2", "size": (64, 96)},
    "needle_pixels": {"aspect": "20"},
    "turned": {"matrix": (0, WHOLE, 0, -WHOLE, 0, 0, 0, 0, ONE)},
    "half_turned": {"matrix": (-WHOLE, 0, 0, 0, -WHOLE, 0, 0, 0, ONE)},
    "mirrored": {"matrix": (-WHOLE, 0, 0, 0, WHOLE, 0, 0, 0, ONE)},
    "turned_a_bit": {"matrix": (46340, -46340, 0, 46340, 46340, 0, 0, 0, ONE)},
    "sheared": {"matrix": (WHOLE, HALF, 0, 0, WHOLE, 0, 0, 0, ONE)},
    "no_matrix_at_all": {"matrix": (0,) * 9},
    "interlaced": {"codec": "libx264", "options": INTERLACED},
    "hdr_pq": {"codec": "libx264", "options": PQ},
    "hdr_hlg": {"codec": "libx264", "options": HLG},
}
_NAMES = {
    "escape": "esc\x1b[31mRED\x1b]0;pwned\x07.mp4",
    "right_to_left": "abc\u202e4pm.mp4",
    "upper_case": "UPPER.MP4",
    "dots": "...mp4",
    "star": "star*?[x].mp4",
    "fragment": "a#frag?versionId=1.mp4",
    "markup": "[bold]markup.mp4",
}
_OF_MATRIX, _OF_KIND = "its display matrix does more", "not a file: a pipe, socket, device"
REASONS = {
    "needle_pixels": "pixels 20 times as wide as high",
    **dict.fromkeys(("turned_a_bit", "sheared", "no_matrix_at_all"), _OF_MATRIX),
    "interlaced": "frame 0 is interlaced",
    "hdr_pq": "frame 0 is HDR (PQ)",
    "hdr_hlg": "frame 0 is HDR (HLG)",
    "sound_alone": "no video stream",
    "picture_changes": "its picture changes",
    "sparse": "too large: 5368709120 bytes",
    "dangling_link": "missing: no such file",
    "link_to_itself": "unreadable: Too many levels of symbolic links",
    **dict.fromkeys(("pipe", "socket", "device"), _OF_KIND),
}
SOUND = hostile_videos.SOUND | {*_ENCODED, *_NAMES, "hard_link", "in_folder"} - {*REASONS}


def write_odd(folder, outside, port):
    """One file of each kind, by kind; `outside` and `port` as `write_hostile` has them."""
    made = hostile_videos.write_hostile(folder, outside, port)
    for kind, said in _ENCODED.items():
        made[kind] = _encoded(folder / f"{kind}.mp4", **said)
    for kind, name in _NAMES.items():
        made[kind] = folder / name
        write_video(made[kind], frames=9, height=32, width=32, seed=len(made))
    made["sound_alone"] = _sound(folder / "sound_alone.mp4")
    made.update(_files(folder, made["h264"].read_bytes()))
    return made


def _encoded(
    path,
    *,
    codec="mpeg4",
    pixels="yuv420p",
    container="mp4",
    size=(32, 48),
    frames=9,
    rate=16,
    **more,
):
    """A moving pattern; `more` are times (every i*i*n ms), aspect, matrix and options."""
    import av

    base = np.random.default_rng(frames + size[1]).integers(0, 256, (*size, 3), np.uint8)
    with av.open(str(path), "w", format=container) as output:
        stream = output.add_stream(codec, rate=rate)
        stream.height, stream.width, stream.pix_fmt = *size, pixels
        stream.thread_count = 1
        stream.options = more.get("options", {})
        if "aspect" in more:
            stream.codec_context.sample_aspect_ratio = Fraction(more["aspect"])
        if "matrix" in more:
            stream.set_display_matrix(more["matrix"])
        for number in range(frames):
            frame = av.VideoFrame.from_ndarray(np.roll(base, number, axis=1), "rgb24")
            if "times" in more:
                frame.pts, frame.time_base = number**2 * more["times"], Fraction(1, 1000)
            output.mux(stream.encode(frame))
        output.mux(stream.encode())
    return path


def _sound(path):
    import av

    with av.open(str(path), "w") as output:
        stream = output.add_stream("aac", rate=44100)
        for number in range(20):
            silence = np.zeros((2, 1024), np.float32)
            frame = av.AudioFrame.from_ndarray(silence, format="fltp", layout="stereo")
            frame.sample_rate, frame.pts = 44100, number * 1024
            output.mux(stream.encode(frame))
        output.mux(stream.encode())
    return path


def _files(folder, data):
    """What is odd by where it lies, or by what lies there."""
    made = {
        kind: folder / f"{kind}.mp4"
        for kind in ("sparse", "link_to_itself", "device", "hard_link", "socket", "picture_changes")
    }
    with made["sparse"].open("wb") as file:
        file.truncate(5 << 30)
    made["link_to_itself"].symlink_to(made["link_to_itself"].name)
    made["device"].symlink_to("/dev/zero")
    source = folder.parent / "linked.mp4"
    source.write_bytes(data)
    os.link(source, made["hard_link"])
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(folder, os.O_RDONLY)  # names of sockets are short
        listener.bind(f"/proc/self/fd/{here}/{made['socket'].name}")
        os.close(here)
    said = {"codec": "mpeg2video", "rate": 25, "frames": 5, "container": "mpegts"}
    parts = [
        _encoded(folder.parent / f"{width}.ts", size=(32, width), **said) for width in (48, 96)
    ]
    made["picture_changes"].write_bytes(b"".join(part.read_bytes() for part in parts))
    made["in_folder"] = folder / "folder.mp4" / ".hidden" / "inner.mp4"
    made["in_folder"].parent.mkdir(parents=True)
    made["in_folder"].write_bytes(data)
    return made
