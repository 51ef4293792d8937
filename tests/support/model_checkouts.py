"""Autoencoders of other repositories, from checkouts below MODELS_SRC, in small configurations.

Nothing of theirs is installed or copied: a file is imported by its path, and of what it imports
from its own repository or from packages that computing does not need there are stand-ins.
"""

import importlib.util
import os
import sys
import types
import typing
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

SPREAD = 0.1  # of biases


@dataclass(frozen=True)
class Checkout:
    """A file of a repository, how its model is built, and how it is called."""

    file: str
    build: object
    calls: dict  # phase -> function of (model, given)
    given: dict  # phase -> sizes
    stand_ins: dict
    package: str = ""  # whose relative imports the file has
    root: str = ""  # a folder of packages that the file imports from

    def model(self, dtype=torch.float32):
        """Weights of variance 1 / fan-in that bf16 holds, in a type; no bias is zero."""
        model = self.build(self.module())
        generator = torch.Generator().manual_seed(0)
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() > 1 and name.endswith("weight"):
                noise = noise / parameter[0].numel() ** 0.5
            else:
                noise = (0 if name.endswith("bias") else 1) + noise * SPREAD
            parameter.data.copy_(noise.bfloat16().float())
        return torch.nn.Module.to(model, dtype=dtype).eval().requires_grad_(requires_grad=False)

    def module(self):
        """Their file, imported; skipped if this checkout is not there."""
        path = Path(os.environ["MODELS_SRC"], self.file)
        if not path.is_file():
            pytest.skip(f"models_src: {path} is not there")
        name = f"{self.package}.{path.stem}" if self.package else f"checkout_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        stood_in = any(name.startswith(f"{self.package}.") for name in self.stand_ins)
        if self.package and not stood_in:  # before the stand-ins: it looks for packages by itself
            importlib.import_module(self.package)
        with pytest.MonkeyPatch.context() as patch, present(self.stand_ins):
            if self.root:
                patch.syspath_prepend(Path(os.environ["MODELS_SRC"], self.root))
            spec.loader.exec_module(module)
        return module

    def example(self, phase):
        generator = torch.Generator().manual_seed(1)
        return torch.rand(self.given[phase], generator=generator).bfloat16().float()

    def call(self, phase, model):
        given = self.example(phase).to(next(model.parameters()).dtype)
        with torch.no_grad():
            return self.calls[phase](model, given)


@contextmanager
def present(stand_ins):
    """Modules of these names with these attributes, and those that contain them."""
    before = dict(sys.modules)
    without_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    for name, attributes in stand_ins.items():
        parts = name.split(".")
        for length in range(1, len(parts) + 1):
            whole = ".".join(parts[:length])
            sys.modules.setdefault(whole, types.ModuleType(whole))
        vars(sys.modules[name]).update(attributes)
    yield
    sys.dont_write_bytecode = without_bytecode
    for name in set(sys.modules) - set(before):
        if any(each == name or each.startswith(f"{name}.") for each in stand_ins):
            del sys.modules[name]


def _wan(options):
    return lambda module: module.WanVAE_(**options)


SCALE = [0.0, 1.0]
WAN_CALLS = {
    "encode": lambda model, given: model.encode(given * 2 - 1, SCALE),
    "decode": lambda model, given: model.decode(given * 2 - 1, SCALE),
}
SMALL_WAN = {"dim": 8, "z_dim": 4, "num_res_blocks": 1, "temperal_downsample": [False, True, True]}


def _taehv(**options):
    return lambda module: module.TAEHV(checkpoint_path=None, **options)


def _taehv_calls(*, parallel):
    options = {"parallel": parallel, "show_progress_bar": False}
    return {
        "encode": lambda model, given: model.encode_video(given, **options),
        "decode": lambda model, given: model.decode_video(given, **options),
    }


TAEHV_SIZES = {"encode": (1, 5, 3, 16, 24), "decode": (1, 3, 16, 2, 3)}


def _unused(*_args, **_kwargs):
    raise AssertionError("a stand-in was called")


def _hunyuan(module):
    return module.AutoencoderKLConv3D(
        in_channels=3,
        out_channels=3,
        latent_channels=4,
        block_out_channels=(16, 32, 32),
        layers_per_block=1,
        ffactor_spatial=4,
        ffactor_temporal=4,
        sample_size=32,
        sample_tsize=8,
    )


def _turbo(module):
    # Wide enough that no position is all but zero: norms would make anything of its roundings.
    return module.AutoencoderKLTurboVAED(
        latent_channels=16,
        decoder_block_out_channels=(16, 32, 64, 64),
        decoder_layers_per_block=(1, 1, 1, 1, 1),
        decoder_is_dw_conv=(False, False, False, True, True),
        decoder_dw_kernel_size=5,
        patch_size=2,
    )


class _ContextVarBase(torch.nn.Module):
    """What sglang's autoencoders are made from, as far as a decode with caches needs it."""

    def __init__(self, config):
        super().__init__()
        self.config = config


def _cat_pad(x, cache, padding):
    """Cached frames before those of x, then zeros."""
    if cache is not None and padding[4] > 0:
        x = torch.cat([cache, x], dim=2)
        padding[4] -= cache.shape[2]
    return torch.nn.functional.pad(x, padding) if any(padding) else x


def _sglang(module):
    config = types.SimpleNamespace(
        z_dim=4,
        base_dim=8,
        decoder_base_dim=None,
        dim_mult=(1, 2, 4, 4),
        num_res_blocks=1,
        attn_scales=(),
        temperal_downsample=(False, True, True),
        latents_mean=(0.0,) * 4,
        latents_std=(1.0,) * 4,
        shift_factor=None,
        load_encoder=True,
        load_decoder=True,
        in_channels=3,
        out_channels=3,
        dropout=0.0,
        is_residual=False,
        use_feature_cache=True,
        patch_size=None,
    )
    return module.AutoencoderKLWan(config)


SGLANG = "sglang.multimodal_gen"
SGLANG_STAND_INS = {
    f"{SGLANG}.configs.models.vaes": {"WanVAEConfig": object},
    f"{SGLANG}.configs.models.vaes.base": {
        "should_use_spatial_shard_parallel_decode": lambda _: False
    },
    f"{SGLANG}.runtime.distributed.parallel_state": dict.fromkeys(
        (
            "get_decode_parallel_rank",
            "get_decode_parallel_world_size",
            "get_sp_parallel_rank",
            "get_sp_world_size",
        ),
        _unused,
    ),
    f"{SGLANG}.runtime.layers.activation": {"get_act_fn": lambda _: torch.nn.SiLU()},
    f"{SGLANG}.runtime.layers.parallel_conv": {
        **{
            name: type(name, (torch.nn.Module,), {})
            for name in (
                "SpatialParallelCausalConv3d",
                "SpatialParallelConv2d",
                "SpatialParallelZeroPad2d",
            )
        },
        "causal_conv3d_cat_pad": _cat_pad,
        "disable_spatial_parallel_decode": nullcontext,
        **dict.fromkeys(
            (
                "chunk_height_for_parallel_decode",
                "gather_and_trim_height",
                "gather_height_for_global_op",
                "split_for_parallel_decode",
            ),
            _unused,
        ),
    },
    f"{SGLANG}.runtime.models.vaes.common": {
        "DiagonalGaussianDistribution": lambda parameters: parameters,
        "ParallelTiledVAE": _ContextVarBase,
        "should_run_spatial_shard_parallel_decode": lambda *_: False,
    },
    f"{SGLANG}.runtime.platforms": {
        "current_platform": types.SimpleNamespace(
            is_cuda=lambda: False, is_rocm=lambda: False, is_amp_supported=lambda: True
        )
    },
}


def _ltx2(module):
    return module.ConvVideoDecoder(
        in_channels=16,
        base_channels=16,
        decoder_blocks=[
            ("res_x", {"num_layers": 1}),
            ("compress_all", {"residual": True, "multiplier": 2}),
            ("res_x", {"num_layers": 1}),
        ],
        patch_size=2,
    )


def _vidtok(module):
    options = {
        "ch": 8,
        "ch_mult": (1, 2, 4, 4),
        "z_channels": 4,
        "in_channels": 3,
        "out_ch": 3,
        "num_res_blocks": 1,
        "norm_type": "layernorm",
        "interpolation_mode": "trilinear",
    }
    parts = {
        "encoder": module.EncoderCausal3DPadding(double_z=True, **options),
        "decoder": module.DecoderCausal3DPadding(**options),
    }
    return torch.nn.ModuleDict(parts)


CHECKOUTS = {
    "Wan2.1": Checkout(
        "Wan2.1/wan/modules/vae.py",
        _wan(SMALL_WAN),
        WAN_CALLS,
        {"encode": (1, 3, 9, 16, 24), "decode": (1, 4, 3, 2, 3)},
        {},
    ),
    "Wan2.2": Checkout(
        "Wan2.2/wan/modules/vae2_2.py",
        _wan({**SMALL_WAN, "dec_dim": 16}),
        WAN_CALLS,
        {"encode": (1, 3, 9, 32, 48), "decode": (1, 4, 3, 2, 3)},
        {},
    ),
    "LightVAE": Checkout(
        "LightX2V/lightx2v/models/video_encoders/hf/wan/vae.py",
        _wan({**SMALL_WAN, "dim": 32, "z_dim": 16, "pruning_rate": 0.75}),
        WAN_CALLS,
        {"encode": (1, 3, 5, 16, 16), "decode": (1, 16, 3, 2, 2)},
        {
            "loguru": {"logger": None},
            "lightx2v.utils.envs": {"GET_USE_CHANNELS_LAST_3D": lambda: False},
            "lightx2v.utils.utils": {"load_weights": _unused},
            "lightx2v_platform.base.global_var": {"AI_DEVICE": "cpu"},
        },
    ),
    "TAEHV": Checkout("taehv/taehv.py", _taehv(), _taehv_calls(parallel=True), TAEHV_SIZES, {}),
    "TAEHV, frame by frame": Checkout(
        "taehv/taehv.py",
        _taehv(),
        _taehv_calls(parallel=False),
        {"encode": (1, 4, 3, 16, 24), "decode": (1, 2, 16, 2, 3)},
        {},
    ),
    "TAEHV, super": Checkout(
        "taehv/taehv.py",
        _taehv(arch_variant="super"),
        _taehv_calls(parallel=True),
        {"encode": (1, 4, 3, 16, 16), "decode": (1, 2, 16, 2, 2)},
        {},
    ),
    "HunyuanVideo-1.5": Checkout(
        "HunyuanVideo-1.5/hyvideo/models/autoencoders/hunyuanvideo_15_vae.py",
        _hunyuan,
        {
            "encode": lambda model, given: model.encode(given * 2 - 1).latent_dist.mode(),
            "decode": lambda model, given: model.decode(given * 2 - 1).sample,
        },
        {"encode": (1, 3, 5, 16, 16), "decode": (1, 4, 3, 3, 4)},
        {
            "loguru": {},
            "hyvideo.commons.parallel_states": {"get_parallel_state": _unused},
        },
    ),
    "Turbo-VAED": Checkout(
        "Turbo-VAED/diffusers_vae/src/diffusers/models/autoencoders/autoencoder_kl_turbo_vaed.py",
        _turbo,
        {"decode": lambda model, given: model.decode(given * 2 - 1).sample},
        {"decode": (1, 16, 2, 2, 3)},
        {"timm.models.vision_transformer": {"Mlp": _unused}},
        package="diffusers.models.autoencoders",
    ),
    "VidTok": Checkout(
        "VidTok/vidtok/modules/model_3dcausal_v1_1.py",
        _vidtok,
        {
            "encode": lambda model, given: model["encoder"](given * 2 - 1),
            "decode": lambda model, given: model["decoder"](given * 2 - 1),
        },
        {"encode": (1, 3, 9, 16, 24), "decode": (1, 4, 3, 2, 3)},
        {
            "beartype": {"beartype": lambda function: function},
            "beartype.typing": {"Tuple": tuple, "Union": typing.Union},
            "vidtok.modules.util": {"checkpoint": _unused},
        },
        package="vidtok.modules",
    ),
    "LTX-2": Checkout(
        "LTX-2/packages/ltx-core/src/ltx_core/model/video_vae/conv_video_decoder.py",
        _ltx2,
        {"decode": lambda model, given: model(given * 2 - 1)},
        {"decode": (1, 16, 3, 3, 4)},
        {},
        root="LTX-2/packages/ltx-core/src",
    ),
    "sglang": Checkout(
        "sglang/python/sglang/multimodal_gen/runtime/models/vaes/wanvae.py",
        _sglang,
        {
            "encode": lambda model, given: model.encode(given * 2 - 1),
            "decode": lambda model, given: model.decode(given * 2 - 1),
        },
        {"encode": (1, 3, 9, 16, 24), "decode": (1, 4, 3, 2, 3)},
        SGLANG_STAND_INS,
    ),
}
