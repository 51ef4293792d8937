"""A ConvShape as the call that torch's user would write, at any rank that can say it."""

from math import prod

from trnconv.runtime import LaunchOptions, convolve


def compute(shape, arrays, *, rank=3, machine="trn2", cores=1):
    """The output [N, C_out, D, H, W] of `convolve` for five-dimensional x, w and bias."""
    x, w, bias = arrays
    hidden = 3 - rank
    done = convolve(
        x.reshape(*x.shape[:2], *x.shape[2 + hidden :]),
        w.reshape(*w.shape[:2], *w.shape[2 + hidden :]),
        bias,
        **call_options(shape, rank),
        launch=LaunchOptions(machine, cores),
    )
    expected = (shape.batch, shape.c_out, *shape.out_sizes()[hidden:])
    assert done.y.shape == expected, f"the output is {done.y.shape}, not {expected}"
    return done.y.reshape(shape.batch, shape.c_out, *shape.out_sizes())


def call_options(shape, rank):
    """Stride, padding and dilation of the last `rank` axes."""
    hidden = 3 - rank
    pads = tuple(zip(shape.pad_before, shape.pad_after, strict=True))
    return {
        "stride": shape.stride[hidden:],
        "padding": pads[hidden:],
        "dilation": shape.dilation[hidden:],
    }


def lowest_rank(shape):
    """3, or fewer if the leading axes do nothing: conv1d and conv2d are rank 1 and 2."""
    per_axis = zip(shape.size, shape.kernel, shape.stride, shape.dilation, strict=True)
    idle = [prod(sizes) == 1 for sizes in per_axis]
    padded = [b + a > 0 for b, a in zip(shape.pad_before, shape.pad_after, strict=True)]
    rank = 3
    while rank > 1 and idle[3 - rank] and not padded[3 - rank]:
        rank -= 1
    return rank
