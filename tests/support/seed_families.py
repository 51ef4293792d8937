"""The problems of nki-conv3d, the project this one started from, each with a name.

nki-conv3d (Apache 2.0) tests its im2col kernel on these families: PyTorch's own Conv3d tests, the
autoencoders of Wan 2.1, CogVideoX-5b and HunyuanVideo, bfloat16, dilation and edge cases. Sizes,
strides, padding, dilation, type and bias are as there; its extents are small enough to stay.
Its grouped convolutions are not here: a dense one is what is tested with these.
"""

from __future__ import annotations

from dataclasses import dataclass

from trnconv.geometry import ConvShape, Padding, Triple, conv_shape


@dataclass(frozen=True)
class Problem:
    """One call of conv3d."""

    name: str
    x: tuple[int, int, int, int, int]
    w: tuple[int, int, int, int, int]
    bias: bool = False
    stride: Triple = (1, 1, 1)
    padding: Padding = (0, 0, 0)
    dilation: Triple = (1, 1, 1)
    dtype: str = "float32"

    def shape(self) -> ConvShape:
        """The problem in integers."""
        return conv_shape(
            self.x, self.w, stride=self.stride, padding=self.padding, dilation=self.dilation
        )


ONE = (1, 1, 1)  # a border of one, all around
TWO = (2, 2, 2)
IN_TIME = (1, 0, 0)
CAUSAL = ((2, 0), 1, 1)

PYTORCH = (
    Problem("torch_basic", (1, 2, 4, 5, 4), (3, 2, 2, 3, 2), bias=True),
    Problem("torch_no_bias", (1, 2, 3, 4, 5), (3, 2, 2, 3, 4)),
    Problem("torch_pointwise", (1, 2, 3, 4, 5), (3, 2, 1, 1, 1)),
    Problem("torch_stride", (2, 3, 5, 5, 5), (4, 3, 2, 2, 2), bias=True, stride=TWO),
    Problem(
        "torch_stride_padding", (2, 3, 5, 5, 5), (4, 3, 2, 2, 2), bias=True, stride=TWO, padding=ONE
    ),
    Problem("torch_cube", (1, 2, 4, 5, 4), (3, 2, 3, 3, 3), bias=True),
    Problem("torch_cube_padding", (1, 2, 4, 5, 4), (4, 2, 3, 3, 3), bias=True, padding=ONE),
    Problem("torch_uneven_kernel", (1, 3, 6, 5, 4), (4, 3, 2, 3, 4), bias=True),
    Problem("torch_uneven_image", (1, 2, 4, 8, 6), (3, 2, 2, 3, 2)),
    Problem(
        "torch_cube_stride", (1, 4, 8, 8, 8), (8, 4, 3, 3, 3), bias=True, stride=TWO, padding=ONE
    ),
    Problem("torch_time_kernel", (1, 4, 8, 4, 4), (4, 4, 3, 1, 1), padding=IN_TIME),
    Problem("torch_time_stride", (1, 4, 8, 4, 4), (4, 4, 3, 1, 1), stride=(2, 1, 1)),
)

WAN = (
    Problem("wan_conv_in", (1, 3, 4, 8, 8), (96, 3, 3, 3, 3), padding=ONE),
    Problem("wan_96", (1, 96, 4, 8, 8), (96, 96, 3, 3, 3), padding=ONE),
    Problem("wan_96_to_192", (1, 96, 4, 8, 8), (192, 96, 3, 3, 3), padding=ONE),
    Problem("wan_192", (1, 192, 4, 8, 8), (192, 192, 3, 3, 3), padding=ONE),
    Problem("wan_192_to_384", (1, 192, 4, 4, 4), (384, 192, 3, 3, 3), padding=ONE),
    Problem("wan_384", (1, 384, 4, 4, 4), (384, 384, 3, 3, 3), padding=ONE),
    Problem("wan_time_down_96", (1, 96, 8, 8, 8), (96, 96, 3, 1, 1), stride=(2, 1, 1)),
    Problem("wan_time_down_192", (1, 192, 4, 4, 4), (192, 192, 3, 1, 1), stride=(2, 1, 1)),
    Problem("wan_time_up", (1, 96, 4, 8, 8), (192, 96, 3, 1, 1), padding=IN_TIME),
    Problem("wan_shortcut", (1, 96, 4, 8, 8), (192, 96, 1, 1, 1)),
    Problem("wan_latent_pointwise", (1, 16, 4, 8, 8), (32, 16, 1, 1, 1)),
    Problem("wan_head", (1, 384, 4, 4, 4), (32, 384, 3, 3, 3), bias=True, padding=ONE),
)

COGVIDEOX = (
    Problem("cog_conv_in", (1, 3, 4, 8, 8), (128, 3, 3, 3, 3), bias=True, padding=ONE),
    Problem("cog_128", (1, 128, 4, 8, 8), (128, 128, 3, 3, 3), padding=ONE),
    Problem("cog_128_to_256", (1, 128, 4, 4, 4), (256, 128, 3, 3, 3), padding=ONE),
    Problem("cog_256", (1, 256, 4, 4, 4), (256, 256, 3, 3, 3), padding=ONE),
    Problem("cog_shortcut_256", (1, 128, 4, 4, 4), (256, 128, 1, 1, 1)),
    Problem("cog_256_small", (1, 256, 2, 2, 2), (256, 256, 3, 3, 3), padding=ONE),
    Problem("cog_256_to_512", (1, 256, 2, 1, 1), (512, 256, 3, 3, 3), padding=ONE),
    Problem("cog_512", (1, 512, 2, 1, 1), (512, 512, 3, 3, 3), padding=ONE),
    Problem("cog_shortcut_512", (1, 256, 2, 1, 1), (512, 256, 1, 1, 1)),
    Problem("cog_mid_512", (1, 512, 2, 1, 1), (512, 512, 3, 3, 3), padding=ONE),
    Problem("cog_to_latent", (1, 512, 2, 1, 1), (32, 512, 3, 3, 3), bias=True, padding=ONE),
    Problem("cog_from_latent", (1, 16, 2, 1, 1), (512, 16, 3, 3, 3), bias=True, padding=ONE),
    Problem("cog_512_to_256", (1, 512, 2, 2, 2), (256, 512, 3, 3, 3), padding=ONE),
    Problem("cog_256_to_128", (1, 256, 4, 4, 4), (128, 256, 3, 3, 3), padding=ONE),
    Problem("cog_to_rgb", (1, 128, 4, 8, 8), (3, 128, 3, 3, 3), bias=True, padding=ONE),
)

HUNYUAN = (
    Problem("hun_conv_in", (1, 3, 4, 8, 8), (128, 3, 3, 3, 3), bias=True, padding=ONE),
    Problem("hun_128", (1, 128, 4, 8, 8), (128, 128, 3, 3, 3), padding=ONE),
    Problem("hun_down_128", (1, 128, 4, 8, 8), (128, 128, 3, 3, 3), stride=TWO, padding=ONE),
    Problem("hun_128_to_256", (1, 128, 2, 4, 4), (256, 128, 3, 3, 3), padding=ONE),
    Problem("hun_256", (1, 256, 2, 4, 4), (256, 256, 3, 3, 3), padding=ONE),
    Problem("hun_shortcut_256", (1, 128, 2, 4, 4), (256, 128, 1, 1, 1)),
    Problem("hun_down_256", (1, 256, 2, 4, 4), (256, 256, 3, 3, 3), stride=TWO, padding=ONE),
    Problem("hun_256_to_512", (1, 256, 1, 2, 2), (512, 256, 3, 3, 3), padding=ONE),
    Problem("hun_512", (1, 512, 1, 2, 2), (512, 512, 3, 3, 3), padding=ONE),
    Problem("hun_shortcut_512", (1, 256, 1, 2, 2), (512, 256, 1, 1, 1)),
    Problem("hun_down_512", (1, 512, 1, 2, 2), (512, 512, 3, 3, 3), stride=TWO, padding=ONE),
    Problem("hun_512_one_pixel", (1, 512, 1, 1, 1), (512, 512, 3, 3, 3), padding=ONE),
    Problem("hun_mid_512", (1, 512, 1, 1, 1), (512, 512, 3, 3, 3), padding=ONE),
    Problem("hun_to_latent", (1, 512, 1, 1, 1), (32, 512, 3, 3, 3), bias=True, padding=ONE),
    Problem("hun_from_latent", (1, 16, 1, 1, 1), (512, 16, 3, 3, 3), bias=True, padding=ONE),
    Problem("hun_512_to_256", (1, 512, 2, 4, 4), (256, 512, 3, 3, 3), padding=ONE),
    Problem("hun_256_to_128", (1, 256, 4, 8, 8), (128, 256, 3, 3, 3), padding=ONE),
    Problem("hun_to_rgb", (1, 128, 4, 8, 8), (3, 128, 3, 3, 3), bias=True, padding=ONE),
)

BF16 = "bfloat16"
BFLOAT16 = (
    Problem("bf16_basic", (1, 2, 4, 5, 4), (3, 2, 2, 3, 2), dtype=BF16),
    Problem("bf16_pointwise", (1, 4, 3, 4, 5), (8, 4, 1, 1, 1), dtype=BF16),
    Problem("bf16_padding", (1, 2, 4, 5, 4), (4, 2, 3, 3, 3), padding=ONE, dtype=BF16),
    Problem("bf16_stride", (2, 3, 5, 5, 5), (4, 3, 2, 2, 2), stride=TWO, dtype=BF16),
    Problem("bf16_bias", (1, 2, 4, 5, 4), (3, 2, 2, 3, 2), bias=True, dtype=BF16),
    Problem("bf16_uneven_kernel", (1, 3, 6, 5, 4), (4, 3, 2, 3, 4), bias=True, dtype=BF16),
    Problem("bf16_wan_conv_in", (1, 3, 4, 8, 8), (128, 3, 3, 3, 3), padding=ONE, dtype=BF16),
    Problem(
        "bf16_wan_conv_in_bias",
        (1, 3, 4, 8, 8),
        (128, 3, 3, 3, 3),
        bias=True,
        padding=ONE,
        dtype=BF16,
    ),
    Problem(
        "bf16_wan_time_down", (1, 96, 8, 8, 8), (96, 96, 3, 1, 1), stride=(2, 1, 1), dtype=BF16
    ),
    Problem("bf16_wan_shortcut", (1, 96, 4, 8, 8), (192, 96, 1, 1, 1), dtype=BF16),
    Problem(
        "bf16_padding_bias", (1, 4, 4, 5, 5), (8, 4, 3, 3, 3), bias=True, padding=ONE, dtype=BF16
    ),
    Problem("bf16_precision", (1, 4, 4, 6, 6), (8, 4, 3, 3, 3), padding=ONE, dtype=BF16),
)

DILATION = (
    Problem("dilated_uniform", (1, 2, 6, 8, 8), (3, 2, 2, 3, 3), dilation=TWO),
    Problem("dilated_in_plane", (1, 3, 4, 8, 8), (4, 3, 2, 3, 3), bias=True, dilation=(1, 2, 2)),
    Problem("dilated_in_time", (1, 4, 8, 5, 5), (4, 4, 3, 2, 2), dilation=(2, 1, 1)),
    Problem(
        "dilated_padding", (1, 2, 6, 8, 8), (3, 2, 3, 3, 3), bias=True, padding=TWO, dilation=TWO
    ),
    Problem("dilated_stride", (1, 3, 8, 10, 10), (4, 3, 2, 3, 3), stride=TWO, dilation=TWO),
    Problem("dilated_uneven", (1, 2, 8, 10, 10), (3, 2, 2, 3, 3), dilation=(2, 3, 1)),
    Problem("dilated_by_one", (1, 2, 4, 5, 4), (3, 2, 2, 3, 2), bias=True, dilation=ONE),
    Problem("dilated_cube", (1, 1, 10, 10, 10), (1, 1, 3, 3, 3), dilation=TWO),
)

EDGES = (
    Problem("edge_one_output", (1, 2, 2, 3, 2), (3, 2, 2, 3, 2)),
    Problem("edge_batch", (4, 2, 4, 4, 4), (3, 2, 3, 3, 3), bias=True, padding=ONE),
    Problem("edge_one_channel", (1, 1, 4, 4, 4), (1, 1, 3, 3, 3), padding=ONE),
    Problem("edge_kernel_is_image", (1, 2, 3, 3, 3), (3, 2, 3, 3, 3), bias=True, padding=ONE),
    Problem("edge_one_frame", (1, 4, 1, 8, 8), (8, 4, 1, 3, 3), padding=(0, 1, 1)),
    Problem("edge_time_stride", (1, 4, 6, 8, 8), (4, 4, 3, 3, 3), stride=(2, 1, 1), padding=ONE),
    Problem(
        "edge_plane_stride", (1, 4, 4, 8, 8), (4, 4, 1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1)
    ),
    Problem("edge_causal", (1, 16, 8, 8, 8), (32, 16, 3, 3, 3), padding=CAUSAL),
    Problem(
        "edge_causal_time_stride",
        (1, 32, 8, 4, 4),
        (32, 32, 3, 1, 1),
        stride=(2, 1, 1),
        padding=((2, 0), 0, 0),
    ),
)

FAMILIES = {
    "pytorch": PYTORCH,
    "wan": WAN,
    "cogvideox": COGVIDEOX,
    "hunyuan": HUNYUAN,
    "bfloat16": BFLOAT16,
    "dilation": DILATION,
    "edges": EDGES,
}
PROBLEMS = tuple(problem for family in FAMILIES.values() for problem in family)
