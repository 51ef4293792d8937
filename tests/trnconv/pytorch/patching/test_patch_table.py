"""Patched = unpatched, model by model, in the situations that users put autoencoders into.

Float32, with torch's own convolution inside ours: what differs is what patching does.
"""

import inspect
import threading

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("einops")

from torch.utils.checkpoint import CheckpointError
from torch.utils.flop_counter import FlopCounterMode

from patched_subjects import DIFFUSERS, NAMES, Subject
from recorded_convolutions import Recorder
from three_way import Error
from trnconv.models import Size
from trnconv.pytorch import patch_, patched

pytestmark = pytest.mark.diffusers

# Roundings of float32 are 2**-16 of those of bf16, whose floor is some 0.01: together some 1e-6.
FLOAT32_BOUND = 1e-4
# Of each class, what makes four tiles of a frame that is twice as high and wide as one tile.
LATENT_TILE = 4
# diffusers 0.42.1: a batch of two fails in the model's own code, unpatched too.
ONE_AT_A_TIME = {"allegro": RuntimeError, "hunyuanvideo1.5": RuntimeError}
# The same with slices; LTX is told one timestep for each video of the whole batch, EasyAnimate
# goes on with the cache of the slice before.
UNSLICED = {
    "ltx-video-0.9.1": RuntimeError,
    "ltx-video-0.9.7": RuntimeError,
    "easyanimate5": RuntimeError,
}
WITHOUT_SLICES = ("svd", "kandinsky6-sr")
# diffusers 0.42.1 refuses them: their classes say that they cannot.
UNCHECKPOINTED = (
    "wan2.1",
    "wan2.2-5b",
    "qwen-image",
    "lightvae-wan2.1",
    "lightvae-wan2.2",
    "kandinsky6-sr",
    "hunyuanimage2.1",
    "qwen-image-2.1",
    "sana-dc-ae",
    "dc-ae-f64c128",
)
# The same: a layer that is recomputed finds its cache filled, and makes other shapes.
UNRECOMPUTED = ("easyanimate5",)
# Noise from the one generator of the process: two threads would share it.
NOISY = ("ltx-video-0.9.1",)
every_model = pytest.mark.parametrize("name", NAMES)
every_diffusers_model = pytest.mark.parametrize("name", DIFFUSERS)


def assert_alike(ours, theirs):
    for own, expected in zip(ours, theirs, strict=True):
        assert type(own) is torch.Tensor
        assert own.shape == expected.shape
        assert Error.of(own, expected).largest <= FLOAT32_BOUND


def assert_patched_alike(subject, model, **options):
    """A patched run gives the values of the unpatched model, all convolutions patched."""
    with Recorder() as theirs:
        expected = subject.both(model, **options)
    with patched(model, backend="torch") as report, Recorder() as left:
        ours = subject.both(model, **options)
    assert_alike(ours, expected)
    assert report.left_to_torch == ()
    assert left.calls == []
    assert report.stats.calls == len(theirs.calls) > 0


def assert_failing_alike(subject, model, error, **options):
    with pytest.raises(error):
        subject.both(model, **options)
    with patched(model, backend="torch"), pytest.raises(error):
        subject.both(model, **options)


@every_model
def test_batches_of_two(name):
    subject = Subject(name)
    if name in ONE_AT_A_TIME:
        assert_failing_alike(subject, subject.model(), ONE_AT_A_TIME[name], batch=2)
        assert_patched_alike(subject, subject.model())
    else:
        assert_patched_alike(subject, subject.model(), batch=2)


def tiled(subject):
    """A model whose tiles are small, and a size of several of them."""
    entry = subject.entry
    model = subject.model(tiling="on")
    _, rows, columns = entry.compression
    for name in vars(model):
        if not name.startswith("tile_") or "num_frames" in name or "factor" in name:
            continue
        side = rows if name.endswith("height") else columns
        unit = 1 if "latent" in name else side
        part = 1 if "min" in name else 0.75  # strides leave a quarter to blend
        setattr(model, name, int(LATENT_TILE * unit * part))
    frames = entry.tiny.frames
    return model, Size("tiled", frames, 2 * LATENT_TILE * rows, 2 * LATENT_TILE * columns)


# allegro always tiles, with kernels of its own size: test_patched_models has it.
TILED = [name for name in DIFFUSERS if {"off", "on"} <= set(Subject(name).entry.tilings)]


@pytest.mark.parametrize("name", TILED)
def test_tiles(name):
    subject = Subject(name)
    model, size = tiled(subject)
    with Recorder() as whole:
        subject.both(subject.model(tiling="off"), size=size)
    with Recorder() as in_tiles:
        subject.both(model, size=size)
    assert len(in_tiles.calls) >= 4 * len(whole.calls) - 8, "it did not tile"
    assert_patched_alike(subject, model, size=size)


@pytest.mark.parametrize("name", [name for name in DIFFUSERS if name not in WITHOUT_SLICES])
def test_slices(name):
    subject = Subject(name)
    model = subject.model()
    model.enable_slicing()
    if name in UNSLICED:
        assert_failing_alike(subject, model, UNSLICED[name], batch=2)
        return
    with Recorder() as recorder:
        subject.both(model, batch=2)
    sliced = len(recorder.calls)
    with Recorder() as recorder:
        subject.both(model, batch=1)
    assert sliced > len(recorder.calls)
    assert_patched_alike(subject, model, batch=2)


def gradients(subject, model, phase):
    """The result, and gradients of what was given and of every parameter."""
    x = subject.given(phase).requires_grad_()
    model.zero_grad()
    y = subject.run(model, phase, x)
    y.square().mean().backward()
    grads = {key: each.grad for key, each in model.named_parameters() if each.grad is not None}
    return y.detach(), x.grad, {key: grad.clone() for key, grad in grads.items()}


@pytest.mark.parametrize(
    "name", [name for name in DIFFUSERS if name not in (*UNCHECKPOINTED, *UNRECOMPUTED)]
)
def test_gradient_checkpoints(name):
    subject = Subject(name)
    model = subject.model().train().requires_grad_()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model.enable_gradient_checkpointing()
    for phase in subject.phases:
        expected = gradients(subject, model, phase)
        with patched(model, backend="torch") as report:
            ours = gradients(subject, model, phase)
        assert any("gradients are on" in reason for reason in report.stats.eager)
        assert_alike(ours[:2], expected[:2])
        assert set(ours[2]) == set(expected[2]) != set()
        assert_alike(
            [torch.cat([each.flatten() for each in ours[2].values()])],
            [torch.cat([each.flatten() for each in expected[2].values()])],
        )


@pytest.mark.parametrize("name", UNCHECKPOINTED)
def test_models_without_gradient_checkpoints(name):
    with pytest.raises(ValueError, match="does not support gradient checkpointing"):
        Subject(name).model().enable_gradient_checkpointing()


@pytest.mark.parametrize("name", UNRECOMPUTED)
def test_models_whose_layers_cannot_be_recomputed(name):
    subject = Subject(name)
    model = subject.model().train().requires_grad_()
    model.enable_gradient_checkpointing()
    with pytest.raises(CheckpointError):
        gradients(subject, model, "decode")


@every_diffusers_model
@pytest.mark.parametrize("storage", [torch.bfloat16, torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize("order", ["cast, then patched", "patched, then cast"])
def test_layerwise_casts(name, storage, order):
    """Weights are kept in a smaller type, and cast before each layer runs."""
    subject = Subject(name)
    casts = {"storage_dtype": storage, "compute_dtype": torch.float32}
    theirs = subject.model()
    theirs.enable_layerwise_casting(**casts)
    expected = subject.both(theirs)
    model = subject.model()
    if order == "cast, then patched":
        model.enable_layerwise_casting(**casts)
    report = patch_(model, backend="torch")
    if order == "patched, then cast":
        model.enable_layerwise_casting(**casts)
    assert_alike(subject.both(model), expected)
    assert report.stats.works or all("float8" in entry.reason for entry in report.left_to_torch)


@every_model
def test_flops_and_signatures(name):
    subject = Subject(name)
    model = subject.model()
    names = ("forward", *subject.phases)
    expected = [inspect.signature(getattr(model, name)) for name in names]
    with FlopCounterMode(display=False) as theirs:
        subject.both(model)
    with patched(model, backend="torch"), FlopCounterMode(display=False) as ours:
        subject.both(model)
        assert [inspect.signature(getattr(model, name)) for name in names] == expected
    assert ours.get_total_flops() == theirs.get_total_flops() > 0


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NOISY])
def test_threads(name):
    subject = Subject(name)
    model = subject.model()
    batches = (1, 1 if name in ONE_AT_A_TIME else 2)
    caches = any(hasattr(model, name) for name in ("clear_cache", "_clear_conv_cache"))
    if subject.entry is None or caches:
        models = [subject.model() for _ in range(2)]  # it keeps its cache on itself
    else:
        models = [model, model]
    expected = [subject.both(*each) for each in zip(models, batches, strict=True)]
    for each in {id(each): each for each in models}.values():
        patch_(each, backend="torch")
    results = {}

    def work(at):
        results[at] = subject.both(models[at], batches[at])

    workers = [threading.Thread(target=work, args=(at,)) for at in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for at in range(2):
        assert_alike(results[at], expected[at])
