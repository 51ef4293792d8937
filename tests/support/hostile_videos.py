"""Forty kinds of file that nobody vouches for, each called like a video.

`write_hostile` makes them; a kind that has to be encoded all the same is in `SOUND`.
"""

import os
import struct

import numpy as np

from corpus_videos import write_video

SOUND = frozenset(
    "plain double_colon url_in_name tab_in_name newline_in_name not_unicode spaces long_name"
    " percent leading_dash quote trailing_garbage symbolic_link webm_inside avi_inside"
    " false_gigapixels false_no_picture".split()
)


def write_hostile(folder, outside, port):
    """One file of each kind below `folder`, by kind. `outside` is a sound video beyond the corpus.

    Whoever follows the addresses inside of them reads `outside`, connects to `port` on this
    machine, or listens on it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sound = folder.parent / "sound.mp4"
    write_video(sound, frames=9, height=32, width=32)
    data = sound.read_bytes()
    made = {}
    for kind, content in {**_contents(data, outside, port), **_boxes(data)}.items():
        made[kind] = folder / f"{kind}.mp4"
        made[kind].write_bytes(content)
    made.update(_names(folder, data))
    made.update(_special(folder, sound))
    made.update(_pictures(folder))
    return made


def _contents(data, outside, port):
    """Text that makes FFmpeg open something else, archives, pages, and bytes of no kind."""
    playlist = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{}\n#EXT-X-ENDLIST\n"
    sdp = f"v=0\no=- 0 0 IN IP4 0.0.0.0\ns=x\nc=IN IP4 0.0.0.0\nt=0 0\nm=video {port} RTP/AVP 96\n"
    page = "<MPD><BaseURL>http://127.0.0.1:{}/</BaseURL></MPD>"
    rng = np.random.default_rng(0)
    return {
        "empty": b"",
        "one_byte": b"\0",
        "zeros": bytes(10_000),
        "noise": rng.integers(0, 256, 10_000, dtype=np.uint8).tobytes(),
        "text": b"not a video\n" * 100,
        "concat_of_another": f"ffconcat version 1.0\nfile '{outside}'\n".encode(),
        "playlist_of_another": playlist.format(outside).encode(),
        "playlist_of_file_url": playlist.format(f"file://{outside}").encode(),
        "playlist_of_http": playlist.format(f"http://127.0.0.1:{port}/a.ts").encode(),
        "playlist_of_tcp_listener": playlist.format(f"tcp://0.0.0.0:{port}?listen=1").encode(),
        "playlist_of_udp": playlist.format(f"udp://0.0.0.0:{port}").encode(),
        "session_description": sdp.encode() + b"a=rtpmap:96 H264/90000\n",
        "dash": page.format(port).encode(),
        "image_sequence": b"%03d.png",
        "svg": f'<svg><image href="file://{outside}"/></svg>'.encode(),
        "zip": b"PK\x03\x04" + bytes(200),
        "elf": b"\x7fELF" + bytes(200),
        "gif": b"GIF89a\x01\x00\x01\x00\x80\x00\x00" + bytes(30) + b";",
        "deep_json": b"[" * 100_000,
        "trailing_garbage": data + b"\x55" * 1000,
        "half": data[: len(data) // 2],
        "no_header": data[100:],
        "header_alone": data[:40],
    }


def _boxes(data):
    """MP4 files whose boxes lie about themselves."""
    start = data.find(b"mdat") + 4
    huge = struct.pack(">I4sQ", 1, b"mdat", 1 << 62)
    nested = b"".join(struct.pack(">I4s", 8 * (2000 - n), b"moov") for n in range(2000))
    return {
        "box_of_exabytes": data[:32] + huge + data[48:],
        "nested_boxes": data[:28] + nested,
        "frames_of_zeros": data[:start] + bytes(len(data) - start),
        "damaged_frame": data[: start + 100] + b"\x55" * 700 + data[start + 800 :],
        "false_gigapixels": _with_size(data, 65_535, 65_535),
        "false_no_picture": _with_size(data, 0, 0),
    }


def _with_size(data, height, width):
    """The same file, whose sample description claims another size."""
    at = data.find(b"mp4v", data.find(b"stsd")) + 28
    return data[:at] + struct.pack(">HH", width, height) + data[at + 4 :]


def _names(folder, data):
    """Sound videos under names that are trouble."""
    names = {
        "plain": "plain.mp4",
        "double_colon": "a::b.mp4",
        "url_in_name": "s3:~~bucket~x::http:~~127.0.0.1~x.mp4".replace("~", "\N{FRACTION SLASH}"),
        "tab_in_name": "a\tb.mp4",
        "newline_in_name": "a\nb.mp4",
        "not_unicode": os.fsdecode(b"\xff\xfe.mp4"),
        "spaces": "  a b  .mp4",
        "long_name": "x" * 240 + ".mp4",
        "percent": "%s%n%20.mp4",
        "leading_dash": "-i.mp4",
        "quote": "'\"$(id);.mp4",
    }
    for name in names.values():
        (folder / name).write_bytes(data)
    return {kind: folder / name for kind, name in names.items()}


def _special(folder, sound):
    """What is no regular file of its own."""
    (folder / "symbolic_link.mp4").symlink_to(sound)
    (folder / "dangling_link.mp4").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe.mp4")
    kinds = ("symbolic_link", "dangling_link", "pipe")
    return {kind: folder / f"{kind}.mp4" for kind in kinds}


def _raw_gigapixels(path):
    """Uncompressed video, whose size nothing but the container knows."""
    import av

    with av.open(str(path), "w", format="avi") as container:
        stream = container.add_stream("rawvideo", rate=16)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "bgr24"
        frame = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="bgr24")
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    data = path.read_bytes()
    at = data.find(b"strf") + 12
    path.write_bytes(data[:at] + struct.pack("<ii", 30_000, 30_000) + data[at + 8 :])


def _pictures(folder):
    """Videos of shapes that no bucket takes, and of other containers under a false name."""
    _raw_gigapixels(folder / "raw_gigapixels.mp4")
    write_video(folder / "short.mp4", frames=2, height=32, width=32)
    write_video(folder / "small.mp4", frames=9, height=16, width=16)
    for container in ("webm", "avi"):
        path = folder.parent / f"inside.{'mkv' if container == 'webm' else container}"
        write_video(path, frames=9, height=32, width=32)
        (folder / f"{container}_inside.mp4").write_bytes(path.read_bytes())
    kinds = ("short", "small", "raw_gigapixels", "webm_inside", "avi_inside")
    return {kind: folder / f"{kind}.mp4" for kind in kinds}
