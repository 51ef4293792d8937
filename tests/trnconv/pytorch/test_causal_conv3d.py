"""causal_conv3d: chunk by chunk the same frames as the whole video at once, in constant memory.

The whole video is torch's own: padded in front, then torch.nn.functional.conv3d. Values are whole
numbers, so sums are exact and equal results are equal bits, in whatever order they are computed.
"""

import pytest

from repetition import few

torch = pytest.importorskip("torch")

from torch.nn import functional

from integer_networks import integers
from trnconv.errors import ShapeError, UnsupportedError
from trnconv.pytorch import causal_conv3d
from trnconv.pytorch.backends.conv_call import ConvSpec, words_of

pytestmark = pytest.mark.torch

CHUNKINGS = [[1, 4, 4], [1, 8], [9], [2, 2, 5], [1] * 9]
C_IN, C_OUT = 4, 6
VIDEO = (1, C_IN, 9, 5, 6)


def filters(kernel=(3, 3, 3), groups=1):
    weight = integers(C_OUT, C_IN // groups, *kernel, most=2, seed=1)
    return weight, integers(C_OUT, most=5, seed=2)


def whole(video, weight, bias, first="zeros", **options):
    """The whole video at once: frames in front, then rows and columns, then the convolution."""
    stride, dilation = options.pop("stride", 1), options.pop("dilation", 1)
    steps, spread = (each if isinstance(each, int) else each[0] for each in (stride, dilation))
    front = spread * (weight.shape[2] - 1) + 1 - steps
    if front > 0:
        mode = "constant" if first == "zeros" else first
        video = functional.pad(video, (0, 0, 0, 0, front, 0), mode=mode)
    else:
        video = video[:, :, -front:]
    rows, columns = options.pop("padding", (0, 0))
    named = {"zeros": "constant"}
    mode = options.pop("padding_mode", "zeros")
    sides = (columns, columns, rows, rows, 0, 0)
    video = functional.pad(video, sides, mode=named.get(mode, mode))
    groups = options.pop("groups", 1)
    assert not options
    return functional.conv3d(video, weight, bias, stride, 0, dilation, groups)


def in_chunks(video, weight, bias, lengths, **options):
    outputs, cache = [], None
    for chunk in video.split(lengths, dim=2):
        y, cache = causal_conv3d(chunk, weight, bias, cache, **options)
        outputs.append(y)
    return torch.cat(outputs, dim=2)


def assert_chunks_are_the_whole(lengths, kernel=(3, 3, 3), shape=VIDEO, **options):
    video = integers(*shape, most=3)
    weight, bias = filters(kernel, options.get("groups", 1))
    expected = whole(video, weight, bias, **options)
    assert torch.equal(in_chunks(video, weight, bias, lengths, **options), expected)


@pytest.mark.parametrize("first", ["zeros", "replicate"])
@pytest.mark.parametrize("lengths", CHUNKINGS, ids=str)
def test_chunks_give_the_frames_of_the_whole_video(lengths, first):
    assert_chunks_are_the_whole(lengths, padding=(1, 1), first=first)


@few(10)
@pytest.mark.parametrize("lengths", CHUNKINGS, ids=str)
@pytest.mark.parametrize("kernel", [(1, 1, 1), (1, 3, 3), (2, 1, 1), (5, 2, 2)], ids=str)
def test_kernels(kernel, lengths):
    assert_chunks_are_the_whole(lengths, kernel)


@pytest.mark.parametrize("first", ["zeros", "replicate"])
@pytest.mark.parametrize("lengths", CHUNKINGS, ids=str)
def test_dilation_in_time(lengths, first):
    options = {"dilation": (2, 1, 1), "padding": (1, 1), "first": first}
    assert_chunks_are_the_whole(lengths, **options)


@few(8)
@pytest.mark.parametrize("first", ["zeros", "replicate"])
@pytest.mark.parametrize("lengths", [[2, 4, 4], [2, 8], [10], [6, 4]], ids=str)
@pytest.mark.parametrize("kernel", [(3, 1, 1), (2, 1, 1), (1, 1, 1), (4, 3, 3)], ids=str)
def test_a_stride_of_two_in_time(kernel, lengths, first):
    options = {"stride": (2, 1, 1), "first": first}
    assert_chunks_are_the_whole(lengths, kernel, shape=(1, C_IN, 10, 5, 6), **options)


@pytest.mark.parametrize("mode", ["zeros", "replicate", "reflect", "circular"])
@pytest.mark.parametrize("lengths", [[1, 4, 4], [2, 2, 5]], ids=str)
def test_modes_of_rows_and_columns(mode, lengths):
    options = {"padding": (1, 2), "padding_mode": mode, "first": "replicate"}
    assert_chunks_are_the_whole(lengths, **options)


@pytest.mark.parametrize("options", [{"groups": 2}, {"stride": (1, 2, 2), "padding": (1, 1)}])
def test_groups_and_strides_of_pixels(options):
    assert_chunks_are_the_whole([1, 4, 4], **options)


def test_several_videos_at_once():
    assert_chunks_are_the_whole([1, 4, 4], shape=(2, *VIDEO[1:]), padding=(1, 1))


@pytest.mark.parametrize("lengths", CHUNKINGS, ids=str)
def test_ends(lengths):
    video, residual = integers(*VIDEO), integers(1, C_OUT, 9, 5, 6, most=9, seed=5)
    weight, bias = filters()
    expected = torch.relu(whole(video, weight, bias, padding=(1, 1)) + residual)
    outputs, cache = [], None
    for chunk, added in zip(video.split(lengths, 2), residual.split(lengths, 2), strict=True):
        y, cache = causal_conv3d(
            chunk, weight, bias, cache, padding=1, activation="relu", residual=added.contiguous()
        )
        outputs.append(y)
    assert torch.equal(torch.cat(outputs, dim=2), expected)


def test_the_torch_backend_and_the_meta_device():
    video = integers(*VIDEO)
    weight, bias = filters()
    expected = in_chunks(video, weight, bias, [1, 4, 4], padding=1)
    assert torch.equal(
        in_chunks(video, weight, bias, [1, 4, 4], padding=1, backend="torch"), expected
    )
    on_meta = [each.to("meta") for each in (video, weight, bias)]
    assert in_chunks(*on_meta, [1, 4, 4], padding=1).shape == expected.shape


# The cache


def frames_and_bytes(cache):
    storages = {piece.untyped_storage().data_ptr(): piece.untyped_storage() for piece in cache}
    frames = sum(piece.shape[2] for piece in cache)
    return frames, len(cache), sum(storage.nbytes() for storage in storages.values())


@pytest.mark.parametrize("length", [1, 2, 4])
def test_memory_of_the_cache_is_constant_over_fifty_chunks(length):
    weight, bias = filters((3, 1, 1))
    frame_bytes = integers(1, C_IN, 1, 3, 4).nbytes
    cache = None
    for at in range(50):
        _, cache = causal_conv3d(
            integers(1, C_IN, length, 3, 4, seed=at), weight, bias, cache, backend="torch"
        )
        frames, pieces, held = frames_and_bytes(cache)
        assert frames == min(2, (at + 1) * length)
        assert held == frames * frame_bytes
        assert pieces <= 2


@pytest.mark.parametrize("lengths", CHUNKINGS, ids=str)
def test_the_cache_has_the_last_frames_oldest_first(lengths):
    video = integers(*VIDEO)
    weight, bias = filters()
    cache, seen = None, 0
    for chunk in video.split(lengths, dim=2):
        _, cache = causal_conv3d(chunk, weight, bias, cache, backend="torch")
        seen += chunk.shape[2]
        assert torch.equal(torch.cat(cache, dim=2), video[:, :, max(0, seen - 2) : seen])


def test_a_pointwise_convolution_keeps_nothing():
    weight, bias = filters((1, 3, 3))
    assert causal_conv3d(integers(*VIDEO), weight, bias)[1] == ()
    strided = causal_conv3d(integers(*VIDEO)[:, :, :8], weight, bias, stride=(4, 1, 1))
    assert strided[1] == ()


def test_the_callers_chunk_can_be_used_again():
    weight, bias = filters()
    for frames in (1, 2, 3):
        chunk, following = integers(1, C_IN, frames, 5, 6), integers(1, C_IN, 1, 5, 6, seed=9)
        _, cache = causal_conv3d(chunk, weight, bias, backend="torch")
        expected, _ = causal_conv3d(following, weight, bias, cache, backend="torch")
        chunk.zero_()
        again, _ = causal_conv3d(following, weight, bias, cache, backend="torch")
        assert torch.equal(again, expected)


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("frames", [1, 2, 3])
def test_the_cache_shares_no_memory_with_what_was_given(frames, gradients):
    """A caller may have one buffer for the cache, and write each chunk's into it."""
    weight, bias = filters((5, 1, 1))
    weight.requires_grad_(gradients)
    buffer = integers(1, C_IN, 3, 5, 6)
    pieces, chunk = (buffer[:, :, :1], buffer[:, :, 1:]), integers(1, C_IN, frames, 5, 6, seed=9)
    before = torch.cat([*pieces, chunk], dim=2)
    y, cache = causal_conv3d(chunk, weight, bias, pieces, backend="torch")
    expected = y.detach().clone()
    buffer.fill_(7)
    chunk.fill_(8)
    assert torch.equal(torch.cat(cache, dim=2), before[:, :, -4:])
    assert torch.equal(y, expected)


# Gradients and the op


@pytest.mark.parametrize("first", ["zeros", "replicate"])
@pytest.mark.parametrize("lengths", [[1, 4, 4], [9]], ids=str)
def test_gradients_are_those_of_the_whole_video(lengths, first):
    grads = []
    for run in (whole, in_chunks):
        video = integers(*VIDEO).requires_grad_()
        weight, bias = (each.requires_grad_() for each in filters())
        chunked = {"lengths": lengths} if run is in_chunks else {}
        y = run(video, weight, bias, **chunked, padding=(1, 1), first=first)
        y.backward(integers(*y.shape, seed=4))
        grads.append([y.detach(), video.grad, weight.grad, bias.grad])
    for ours, theirs in zip(*grads, strict=True):
        assert torch.equal(ours, theirs)


CHECKS = {
    "one piece": {},
    "cached": {"frames": (1, 2)},
    "padded": {"before": (1, 1, 1), "after": (0, 1, 1)},
    "modes": {
        "before": (2, 1, 1),
        "after": (0, 1, 0),
        "modes": ("replicate", "reflect", "zeros"),
    },
    "upsampled": {"before": (0, 1, 1), "after": (0, 1, 1), "upsample": (1, 2, 2)},
    "first frame once": {"upsample": (2, 1, 1), "skip": (1, 0, 0)},
    "activation": {"activation": "silu"},
    "reproducible": {"reproducible": True},
}


@pytest.mark.parametrize("backend", ["nkisim", "torch"])
@pytest.mark.parametrize("check", CHECKS)
def test_the_op_keeps_the_rules_of_torch_library(check, backend):
    options = dict(CHECKS[check])
    frames = options.pop("frames", (3,))
    spec = ConvSpec(**options)
    arguments = (
        [integers(1, C_IN, count, 4, 5, seed=count) for count in frames],
        *filters((2, 1, 1)),
        None,
        None,
        spec.numbers(),
        words_of(spec),
        spec.reproducible,
        backend,
    )
    torch.library.opcheck(torch.ops.trnconv.fused_convolution.default, arguments)


def test_it_compiles_in_one_graph():
    weight, bias = filters()
    video = integers(*VIDEO)

    def two_chunks(x):
        first, cache = causal_conv3d(x[:, :, :1], weight, bias, padding=1)
        second, _ = causal_conv3d(x[:, :, 1:], weight, bias, cache, padding=1)
        return torch.cat([first, second], dim=2)

    compiled = torch.compile(two_chunks, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(video), whole(video, weight, bias, padding=(1, 1)))
    torch.compiler.reset()


# Refusals

X = integers(1, C_IN, 4, 5, 6)
WEIGHT, BIAS = filters()
REFUSED = {
    "unbatched": ((X[0], WEIGHT), {}, "x .*5 dimensions"),
    "flat filters": ((X, WEIGHT[0]), {}, "weight .*5 dimensions"),
    "other type": ((X, WEIGHT.bfloat16()), {}, "bfloat16.*one type is needed"),
    "other residual": ((X, WEIGHT), {"residual": X.bfloat16()}, "one type is needed"),
    "channels": ((X, WEIGHT[:, :3]), {}, "weight"),
    "bias": ((X, WEIGHT, BIAS[:2]), {}, "bias"),
    "a tensor for a cache": ((X, WEIGHT, None, X[:, :, :2]), {}, "tuple of tensors"),
    "cached channels": ((X, WEIGHT, None, (X[:, :3, :2],)), {}, "only the number of frames"),
    "cached columns": ((X, WEIGHT, None, (X[:, :, :2, :, 1:],)), {}, "only the number of frames"),
    "cached type": ((X, WEIGHT, None, (X[:, :, :2].double(),)), {}, "one type"),
    "too much cached": ((X, WEIGHT, None, (X[:, :, :3],)), {}, "a cache of 3 frames.*reads 2"),
    "half a step": ((X[:, :, :3], WEIGHT), {"stride": (2, 1, 1)}, "3 frames.*multiples of 2"),
    "no frames": ((X[:, :, :0], WEIGHT), {}, "a chunk of 0 frames"),
    "first": ((X, WEIGHT), {"first": "ones"}, "first='ones'.*zeros or replicate"),
    "padding of frames": ((X, WEIGHT), {"padding": (1, 1, 1)}, "rows and one for columns"),
    "strides": ((X, WEIGHT), {"stride": (1, 1)}, "one for each of 3 axes"),
    "mode": ((X, WEIGHT), {"padding": 1, "padding_mode": "mirror"}, "padding mode 'mirror'"),
    "small rows": ((X[:, :, :, :2], WEIGHT), {}, "height axis"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_in_words(case):
    arguments, options, words = REFUSED[case]
    with pytest.raises(ShapeError, match=words):
        causal_conv3d(*arguments, **options)


def test_an_unknown_activation_is_refused():
    with pytest.raises(UnsupportedError, match="activation 'selu'"):
        causal_conv3d(X, WEIGHT, activation="selu")


def test_reproducible_gradients_are_refused():
    weight = WEIGHT.clone().requires_grad_()
    with pytest.raises(UnsupportedError, match=r"reproducible=True with gradients.*no_grad"):
        causal_conv3d(X, weight, reproducible=True)
    with torch.no_grad():
        causal_conv3d(X, weight, reproducible=True)
