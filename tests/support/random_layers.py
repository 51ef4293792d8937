"""Layers nobody chose: options of `trnconv` for random convolutions of one, two and three axes."""

import random

MACHINES = ("trn1", "trn2", "trn2", "trn3")
DTYPES = ("bfloat16", "bfloat16", "float16", "float32")
MODES = ("zeros", "zeros", "zeros", "replicate", "reflect", "circular")


def _by_x(numbers):
    return "x".join(map(str, numbers))


def random_layer(seed):
    """Options of one layer: small enough for every command, and as odd as torch allows."""
    draw = random.Random(seed)  # noqa: S311 (the same layers every time)
    axes = draw.choice((1, 2, 2, 3, 3, 3))
    kernel = [draw.choice((1, 2, 3, 3, 5)) for _ in range(axes)]
    dilation = [draw.choice((1, 1, 1, 2)) for _ in range(axes)]
    size = [
        draw.randint((taps - 1) * holes + 1, (taps - 1) * holes + 24)
        for taps, holes in zip(kernel, dilation, strict=True)
    ]
    groups = draw.choice((1, 1, 1, 2, 4))
    channels = [groups * draw.choice((1, 3, 8, 17, 48)) for _ in range(2)]
    asked = [
        *("--channels", f"{channels[0]}:{channels[1]}"),
        *("--kernel", _by_x(kernel), "--size", _by_x(size)),
        *("--dilation", _by_x(dilation), "--groups", str(groups)),
        *("--stride", _by_x(draw.choice((1, 1, 2)) for _ in range(axes))),
        *("--batch", str(draw.choice((1, 1, 2, 5))), "--dtype", draw.choice(DTYPES)),
    ]
    if draw.random() < 0.15:
        return [*asked, "--transposed"], draw.choice(MACHINES)
    padding = [f"{draw.randint(0, taps // 2)}:{draw.randint(0, taps - 1)}" for taps in kernel]
    mode = draw.choice(MODES)
    return [*asked, "--padding", _by_x(padding), "--padding-mode", mode], draw.choice(MACHINES)
