"""Small videos made up for tests, and files that only look like videos."""

import numpy as np


def write_video(path, *, frames=9, height=64, width=64, fps=16, seed=0):
    """A pattern of blocks that moves; every seed has its own."""
    import av

    blocks = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=fps)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.thread_count = 1
        for number in range(frames):
            moved = np.roll(blocks, number, axis=1)
            pixels = np.kron(moved, np.ones((height // 8, width // 8, 1), np.uint8))
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def write_corpus(folder, count, *, lengths=(9, 13, 17), height=64, width=64):
    """`count` videos of different lengths; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"clip_{number:04}.mp4" for number in range(count)]
    for number, path in enumerate(paths):
        frames = lengths[number % len(lengths)]
        write_video(path, frames=frames, height=height, width=width, seed=number)
    return paths


def spoil(path, number):
    """Make a video unreadable, in one of five ways."""
    data = path.read_bytes()
    start = data.find(b"mdat") + 4
    path.write_bytes(
        (
            b"",
            bytes(range(256)) * 8,
            data[: len(data) // 2],
            data[:start] + bytes(len(data) - start),
            data[: start + 100] + b"\x55" * 700 + data[start + 800 :],
        )[number % 5]
    )
