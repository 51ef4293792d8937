"""decode_in_chunks and encode_in_chunks: however a video is cut, it is the same video."""

import pytest

torch = pytest.importorskip("torch")

from three_way import Error, rounded, rounded_model
from trnconv.errors import ShapeError, UnsupportedError
from trnconv.models import find, models
from trnconv.pytorch import decode_in_chunks, encode_in_chunks, patch_, patched
from trnconv.pytorch.lazy import LazyTensor
from trnconv.pytorch.lazy.base.deferred_result import Pending
from trnconv.pytorch.lazy.base.frame_by_frame import on_each_frame
from trnconv.pytorch.lazy.frame_buffers import UnwrittenFrames
from trnconv.pytorch.model_builder import build

pytestmark = pytest.mark.diffusers

SLOTS = ("wan2.1", "wan2.2-5b", "qwen-image")  # qwen-image makes images, and can make videos
# Of latent frames, and of frames. The model's own loop is [1] * 9 and [1, 4, 4, 4, 4].
CHUNKS = {
    "decode": ([1, 4, 4], [1, 8], [9]),
    "encode": ([1, 4, 4, 4, 4], [1, 8, 8], [17], [5, 12]),
}
# A rounding of float32 is 2**-16 of one of bf16, and bf16 costs some 0.05 of the largest value:
# some 1e-6. A wrong frame or a forgotten one costs 1.
FLOAT32_BOUND = 1e-4


def clip(entry, phase, frames, size=(2, 3)):
    """Values that bf16 holds, in float32."""
    generator = torch.Generator().manual_seed(frames)
    if phase == "decode":
        shape = (1, entry.reduced_latent_channels, frames, *size)
        return rounded(torch.randn(shape, generator=generator))
    height, width = size[0] * entry.compression[1], size[1] * entry.compression[2]
    return rounded(torch.rand((1, 3, frames, height, width), generator=generator) * 2 - 1)


def whole(model, phase, given):
    """By the model's own loop."""
    with torch.no_grad():
        if phase == "decode":
            return model.decode(given).sample
        return model.encode(given).latent_dist.mode()


def stream(model, phase, chunks):
    return {"decode": decode_in_chunks, "encode": encode_in_chunks}[phase](model, chunks)


def in_chunks(model, phase, given, lengths):
    return torch.cat(list(stream(model, phase, given.split(lengths, 2))), 2)


@pytest.mark.parametrize("phase", CHUNKS)
@pytest.mark.parametrize("name", SLOTS)
def test_any_chunks_have_the_same_bits_in_the_reproducible_mode(name, phase):
    entry = find(name)
    given = clip(entry, phase, sum(CHUNKS[phase][0])).bfloat16()
    model = rounded_model(entry, torch.bfloat16, reduced=True)
    report = patch_(model, reproducible=True, backend="nkisim")
    y = whole(model, phase, given)
    for lengths in CHUNKS[phase]:
        assert torch.equal(in_chunks(model, phase, given, lengths), y), lengths
    assert not report.stats.left_to_torch
    assert phase == "encode" or y.abs().max() < 1, "clamped values would hide a difference"


def test_the_reproducible_mode_covers_functions_of_torch():
    """Latents of one pixel: torch sums the channels of one position unlike those of several."""
    entry = find("wan2.1")
    given = clip(entry, "decode", 4, (1, 1))
    model = build(entry, reduced=True)
    patch_(model, reproducible=True, backend="nkisim")
    y = whole(model, "decode", given)
    for lengths in ([1, 3], [2, 2]):
        assert torch.equal(in_chunks(model, "decode", given, lengths), y), lengths


class Applied(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize("grad_mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", ["silu", "sigmoid", "tanh", "gelu", "normalize"])
def test_functions_on_each_frame(name, grad_mode):
    """An odd number of elements, so that torch's vectors leave some over."""
    function = getattr(torch.nn.functional, name)
    model = Applied(function)
    patch_(model, reproducible=True)
    with grad_mode():
        for shape in ((1, 8, 9, 3, 5), (2, 3, 9, 1, 1)):
            x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
            y = model(x)
            assert torch.allclose(y, function(x))
            assert torch.equal(torch.cat([model(it) for it in x.split([1, 3, 5], 2)], 2), y)
            images = x[0].movedim(1, 0)
            alone = [model(it) for it in images.split([4, 5])]
            assert torch.equal(torch.cat(alone), model(images))


def test_operators_that_are_left_alone():
    x, aten = torch.ones(1, 2, 3, 4, 5), torch.ops.aten
    norm = aten.linalg_vector_norm.default
    for name, operator, args in (
        ("aten::relu", aten.relu.default, (x,)),
        ("aten::silu_", aten.silu_.default, (x,)),
        ("aten::linalg_vector_norm", norm, (x, 2, [2], True)),
        ("aten::silu", aten.silu.default, (x[0, 0, 0],)),
        ("aten::silu", aten.silu.default, (x.to("meta"),)),
    ):
        assert on_each_frame(name, operator, args, {}) is None
    assert on_each_frame("aten::linalg_vector_norm", norm, (x, 2, [1], True), {}) is not None
    lines = torch.randn(2, 3, 7)  # of samples
    by_blocks = on_each_frame("aten::silu", aten.silu.default, (lines,), {})
    assert by_blocks is not None
    assert torch.allclose(by_blocks, torch.nn.functional.silu(lines))


@pytest.mark.parametrize("phase", CHUNKS)
@pytest.mark.parametrize("name", SLOTS)
def test_any_chunks_are_as_exact_as_bf16_in_the_default_mode(name, phase):
    """One sum in another order may be rounded to the next bf16, and every later layer spreads that.

    So elements are not within one step of bf16 of each other (docs/guides/streaming.md counts
    them); every chunking is within the bound of `three_way` of the exact result.
    """
    entry = find(name)
    given = clip(entry, phase, sum(CHUNKS[phase][0]))
    exact = whole(rounded_model(entry, torch.float32, reduced=True), phase, given)
    model = rounded_model(entry, torch.bfloat16, reduced=True)
    floor = Error.of(whole(model, phase, given.bfloat16()), exact)
    patch_(model, backend="nkisim")
    for lengths in CHUNKS[phase][:2]:
        error = Error.of(in_chunks(model, phase, given.bfloat16(), lengths), exact)
        assert error.within(floor), f"{lengths}: floor {floor}, ours {error}"


@pytest.mark.parametrize("phase", CHUNKS)
@pytest.mark.parametrize("name", SLOTS)
def test_any_chunks_of_an_unpatched_model(name, phase):
    entry = find(name)
    given = clip(entry, phase, sum(CHUNKS[phase][0]))
    model = build(entry, reduced=True)
    y = whole(model, phase, given)
    for lengths in CHUNKS[phase]:
        ours = in_chunks(model, phase, given, lengths)
        assert ours.shape == y.shape
        assert Error.of(ours, y).largest <= FLOAT32_BOUND, lengths


def test_the_bound_would_notice_a_first_chunk_in_one_go():
    """Its temporal resamplers would leave out their convolution for all of its frames."""
    entry = find("wan2.1")
    given = clip(entry, "decode", 3)
    model = build(entry, reduced=True)
    y = whole(model, "decode", given)
    with torch.no_grad():
        cache = [None] * 99
        latents = model.post_quant_conv(given)
        ours = model.decoder(latents, feat_cache=cache, feat_idx=[0], first_chunk=True)
    assert ours.shape != y.shape


@pytest.mark.slow
def test_all_channels_of_a_production_model_have_the_same_bits():
    entry = find("wan2.1")
    given = clip(entry, "decode", 3).bfloat16()
    model = rounded_model(entry, torch.bfloat16, reduced=False)
    patch_(model, reproducible=True, backend="nkisim")
    y = whole(model, "decode", given)
    for lengths in ([1, 2], [3]):
        assert torch.equal(in_chunks(model, "decode", given, lengths), y), lengths
    assert y.abs().max() < 1


def held_by(base):
    return base.result() if isinstance(base, Pending) else base.alias


def held_bytes(cache):
    """Bytes of all storages that a cache keeps alive, each counted once."""
    storages = {}
    for kept in cache:
        tensors = [kept] if isinstance(kept, torch.Tensor) else []
        if isinstance(kept, LazyTensor) and kept.view_of.cell.video is not None:
            bases = [run.base for run in kept.video().runs]
            tensors = [held_by(base) for base in bases if not isinstance(base, UnwrittenFrames)]
        for tensor in tensors:
            storage = tensor.untyped_storage()
            storages[storage._cdata] = storage.nbytes()
    return sum(storages.values())


@pytest.mark.parametrize(
    ("phase", "first", "later"), [("decode", 1, 1), ("decode", 3, 2), ("encode", 1, 4)], ids=str
)
@pytest.mark.parametrize("is_patched", [True, False], ids=["patched", "unpatched"])
@pytest.mark.parametrize("name", SLOTS)
def test_the_cache_does_not_grow(name, is_patched, phase, first, later):
    entry = find(name)
    given = clip(entry, phase, first + 49 * later)
    model = build(entry, reduced=True)
    if is_patched:
        patch_(model, backend="torch")  # the cache is the same, and it takes no simulation
    caches = []
    half = {"decode": model.decoder, "encode": model.encoder}[phase]
    half.register_forward_pre_hook(
        lambda _, __, named: caches.append(named["feat_cache"]), with_kwargs=True
    )
    sizes = [
        held_bytes(caches[-1]) for _ in stream(model, phase, given.split([first] + [later] * 49, 2))
    ]
    assert len(sizes) == 50
    assert sizes[2] > 0
    assert sizes[49] == sizes[2]


def test_two_streams_and_the_model_itself_take_iterations():
    entry = find("wan2.1")
    one, other = clip(entry, "decode", 4), clip(entry, "decode", 5)
    model = build(entry, reduced=True)
    alone = [in_chunks(model, "decode", it, [1, 2, 1]) for it in (one, other[:, :, :4])]
    streams = [decode_in_chunks(model, it.split([1, 2, 1], 2)) for it in (one, other[:, :, :4])]
    mixed = ([], [])
    for _ in range(3):
        for taken, it in zip(mixed, streams, strict=True):
            taken.append(next(it))
            whole(model, "decode", other)
    assert [torch.equal(torch.cat(it, 2), y) for it, y in zip(mixed, alone, strict=True)] == [
        True,
        True,
    ]


@pytest.mark.parametrize("is_patched", [True, False], ids=["patched", "unpatched"])
@pytest.mark.parametrize("phase", CHUNKS)
def test_the_memory_of_a_chunk_may_be_used_again(phase, is_patched):
    entry = find("wan2.1")
    given = clip(entry, phase, 1 + 8)
    step = 4 if phase == "encode" else 1
    lengths = [1] + [step] * (8 // step)
    model = build(entry, reduced=True)
    if is_patched:
        patch_(model, backend="torch")
    y = in_chunks(model, phase, given, lengths)

    def overwritten():
        for chunk in given.clone().split(lengths, 2):
            yield chunk
            chunk.fill_(7.0)

    assert torch.equal(torch.cat(list(stream(model, phase, overwritten())), 2), y)


def test_a_stream_takes_one_chunk_at_a_time():
    entry = find("wan2.1")
    taken = []
    chunks = (taken.append(at) or clip(entry, "decode", 1) for at in range(3))
    frames = decode_in_chunks(build(entry, reduced=True), chunks)
    assert taken == []
    assert next(frames).shape[2] == 1
    assert taken == [0]
    assert next(frames).shape[2] == 4
    assert taken == [0, 1]


def test_there_are_no_gradients_and_the_callers_mode_stays():
    entry = find("wan2.1")
    model = build(entry, reduced=True).requires_grad_()
    given = clip(entry, "decode", 2).requires_grad_()
    for frames in decode_in_chunks(model, given.split(1, 2)):
        assert torch.is_grad_enabled()
        assert not frames.requires_grad


def test_latents_go_from_stream_to_stream():
    entry = find("wan2.2-5b")
    model = build(entry, reduced=True)
    video = clip(entry, "encode", 9)
    latents = encode_in_chunks(model, video.split([1, 8], 2))
    frames = torch.cat(list(decode_in_chunks(model, latents)), 2)
    expected = whole(model, "decode", whole(model, "encode", video))
    assert frames.shape == expected.shape == video.shape
    assert Error.of(frames, expected).largest <= FLOAT32_BOUND


@pytest.mark.parametrize("name", ["wan2.1", "cogvideox"])
def test_moments_are_means_and_log_variances(name):
    entry = find(name)
    model = build(entry, reduced=True)
    video = clip(entry, "encode", 9)
    with torch.no_grad():
        expected = model.encode(video).latent_dist.parameters
    both = torch.cat(list(encode_in_chunks(model, [video], moments=True)), 2)
    assert both.shape[1] == 2 * entry.reduced_latent_channels
    assert both.shape == expected.shape
    assert Error.of(both, expected).largest <= FLOAT32_BOUND


@pytest.mark.parametrize("is_patched", [True, False], ids=["patched", "unpatched"])
@pytest.mark.parametrize(
    ("phase", "lengths"),
    [
        ("decode", [2, 2]),
        ("decode", [3, 2, 2]),
        ("decode", [1]),
        ("encode", [9, 8]),
        ("encode", [13, 8]),
        ("encode", [5]),
    ],
    ids=str,
)
def test_cogvideox_in_its_own_chunks(phase, lengths, is_patched):
    """The same calls, so the same bits."""
    entry = find("cogvideox")
    model = build(entry, reduced=True)
    given = clip(entry, phase, sum(lengths))
    if is_patched:
        patch_(model, backend="torch")
    y = whole(model, phase, given)
    assert torch.equal(in_chunks(model, phase, given, lengths), y)


@pytest.mark.parametrize(
    ("phase", "lengths"),
    [
        ("decode", [4]),
        ("decode", [3, 3]),
        ("decode", [1, 2]),
        ("encode", [16]),
        ("encode", [9, 4]),
        ("encode", [5, 8]),
    ],
    ids=str,
)
def test_other_chunks_of_cogvideox_are_refused(phase, lengths):
    entry = find("cogvideox")
    with pytest.raises(ShapeError, match="normalises over the frames of a chunk"):
        in_chunks(build(entry, reduced=True), phase, clip(entry, phase, sum(lengths)), lengths)


@pytest.mark.parametrize(
    ("name", "lengths", "message"),
    [
        ("wan2.1", [2], "first chunk of 2 frames"),
        ("wan2.1", [4], r"1 \+ 4 k frames"),
        ("wan2.2-5b", [1, 3], "later chunk of 3 frames"),
        ("qwen-image", [5, 1], "later chunk of 1 frames"),
    ],
)
def test_frames_that_make_no_whole_latent_are_refused(name, lengths, message):
    entry = find(name)
    with pytest.raises(ShapeError, match=message):
        in_chunks(
            build(entry, reduced=True), "encode", clip(entry, "encode", sum(lengths)), lengths
        )


def test_chunks_that_are_no_part_of_one_video_are_refused():
    model = build(find("wan2.1"), reduced=True)
    one = torch.zeros(1, 16, 1, 2, 3)
    for chunks, message in (
        ([one[:, :, 0]], "chunks are"),
        ([one[:, :, :0]], "at least one frame"),
        ([one, torch.zeros(1, 16, 1, 2, 4)], "number of frames only"),
        ([one, torch.zeros(2, 16, 1, 2, 3)], "number of frames only"),
        ([one, one.double()], "float64 .*after chunks .*float32"),
    ):
        with pytest.raises(ShapeError, match=message):
            list(decode_in_chunks(model, chunks))


def test_pixels_that_fill_no_patch_are_refused():
    model = build(find("wan2.2-5b"), reduced=True)
    with pytest.raises(ShapeError, match="patches of 2 x 2"):
        list(encode_in_chunks(model, [torch.zeros(1, 3, 1, 33, 48)]))


@pytest.mark.parametrize(
    "name", [it.name for it in models() if it.in_time != "cached" and it.name not in SLOTS]
)
def test_models_without_a_cache_are_refused_at_once(name):
    model = build(find(name), reduced=True)
    for half in (decode_in_chunks, encode_in_chunks):
        with pytest.raises(UnsupportedError, match=f"streaming {type(model).__name__}: its"):
            half(model, [])


def test_tiles_and_slices_are_refused():
    entry = find("wan2.1")
    model = build(entry, reduced=True)
    model.enable_slicing()
    assert next(decode_in_chunks(model, [clip(entry, "decode", 1)])).shape[2] == 1
    with pytest.raises(UnsupportedError, match=r"batch of 2 .* use_slicing"):
        next(decode_in_chunks(model, [clip(entry, "decode", 1).repeat(2, 1, 1, 1, 1)]))
    model.enable_tiling()
    with pytest.raises(UnsupportedError, match=r"use_tiling.*disable_tiling\(\)"):
        decode_in_chunks(model, [])


def test_a_model_may_be_patched_for_one_stream():
    entry = find("wan2.1")
    model = build(entry, reduced=True)
    given = clip(entry, "decode", 3)
    before = in_chunks(model, "decode", given, [1, 2])
    with patched(model, backend="torch") as report:
        inside = in_chunks(model, "decode", given, [1, 2])
    assert report.stats.works
    assert Error.of(inside, before).largest <= FLOAT32_BOUND
    assert torch.equal(in_chunks(model, "decode", given, [1, 2]), before)
