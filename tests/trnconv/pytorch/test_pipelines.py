"""trnconv.accelerate(pipe): pipelines of diffusers go on as before, tiling and offloading too."""

import pytest

torch = pytest.importorskip("torch")

import trnconv
from trnconv.errors import UnsupportedError
from trnconv.pytorch import unpatch_

pytestmark = [pytest.mark.diffusers, pytest.mark.integrations]
# Values around 1, float32 sums in other orders: some hundred steps of 2**-24.
BOUND = 1e-4


def only_decoding(vae):
    """A pipeline of diffusers, which is imported by the tests that run alone."""
    from diffusers import DiffusionPipeline

    class OnlyDecoding(DiffusionPipeline):
        """A pipeline with an autoencoder and nothing else."""

        model_cpu_offload_seq = "vae"

        def __init__(self, vae):
            super().__init__()
            self.register_modules(vae=vae)

        @torch.no_grad()
        def __call__(self, latents):
            video = self.vae.decode(latents.to(self.vae.dtype), return_dict=False)[0]
            self.maybe_free_model_hooks()
            return video

    return OnlyDecoding(vae)


@pytest.fixture
def pipe():
    from diffusers import AutoencoderKLWan

    torch.manual_seed(0)
    vae = AutoencoderKLWan(
        base_dim=8,
        z_dim=4,
        dim_mult=[1, 2],
        num_res_blocks=1,
        temperal_downsample=[True],
        scale_factor_spatial=2,
        scale_factor_temporal=2,
        latents_mean=[0.0] * 4,
        latents_std=[1.0] * 4,
    )
    return only_decoding(vae.eval())


def latents(batch=1, size=4):
    return torch.randn(batch, 4, 2, size, size, generator=torch.Generator().manual_seed(1))


def assert_same(video, expected):
    assert type(video) is torch.Tensor
    assert (video - expected).abs().max() <= BOUND


def test_one_line_and_back(pipe):
    expected = pipe(latents())
    report = trnconv.accelerate(pipe)
    assert report.left_to_torch == ()
    assert_same(pipe(latents()), expected)
    ran = {work.module for work in report.stats.works}
    assert {entry.name for entry in report.patched if entry.name.startswith("decoder")} <= ran
    unpatch_(pipe.vae)
    assert torch.equal(pipe(latents()), expected)


def test_an_autoencoder_itself_and_options_of_patch(pipe):
    report = trnconv.accelerate(pipe.vae, filter_fn=lambda name, _: "conv_out" not in name)
    assert [entry.name for entry in report.left_to_torch] == [
        "encoder.conv_out",
        "decoder.conv_out",
    ]


def test_tiling(pipe):
    pipe.vae.enable_tiling(
        tile_sample_min_height=8,
        tile_sample_min_width=8,
        tile_sample_stride_height=6,
        tile_sample_stride_width=6,
    )
    expected = pipe(latents(size=6))
    report = trnconv.accelerate(pipe, backend="torch")
    assert_same(pipe(latents(size=6)), expected)
    rows = {work.shape.size[1] for work in report.stats.works}
    assert max(rows) <= 8  # tiles of 8 rows, no frame of 12


def test_slicing(pipe):
    pipe.vae.enable_slicing()
    expected = pipe(latents(batch=2))
    report = trnconv.accelerate(pipe, backend="torch")
    assert_same(pipe(latents(batch=2)), expected)
    causal = [work for work in report.stats.works if work.module == "decoder.conv_in"]
    assert {work.shape.batch for work in causal} == {1}


@pytest.mark.adapters
@pytest.mark.parametrize("first", ["offload", "accelerate"])
def test_model_cpu_offload_in_either_order(pipe, first):
    """Hooks of accelerate around the model; the device they load it to is the CPU here."""
    from accelerate import cpu_offload_with_hook

    expected = pipe(latents())

    def offload():
        _, hook = cpu_offload_with_hook(pipe.vae, "cpu")
        pipe._all_hooks = [hook]

    steps = [offload, lambda: trnconv.accelerate(pipe, backend="torch")]
    for step in steps if first == "offload" else reversed(steps):
        step()
    loads = []
    before = pipe.vae._hf_hook.pre_forward
    pipe.vae._hf_hook.pre_forward = lambda *args, **kwargs: (
        loads.append(1) or before(*args, **kwargs)
    )
    with torch.no_grad():
        video = pipe.vae.decode(latents(), return_dict=False)[0]
    assert_same(video, expected)
    assert loads


def test_what_has_no_autoencoder_is_refused(pipe):
    with pytest.raises(UnsupportedError, match=r"Linear has no autoencoder.*patch_"):
        trnconv.accelerate(torch.nn.Linear(1, 1))
    pipe.vae = None
    with pytest.raises(UnsupportedError, match="Its components: vae"):
        trnconv.accelerate(pipe)
