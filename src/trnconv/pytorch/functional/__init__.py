"""torch.nn.functional's convolutions: its names, its order of arguments, its defaults.

What is ours is keyword-only: `padding_mode`, `activation`, `residual`, `accuracy`, `reproducible`,
`backend`, and the `machine` and its `cores` where nkisim computes. Padding is the kernel's
own. Activation and residual are fused into it where no gradient is asked for; with gradients, they
are torch's own operators after the kernel, which is the same mathematics.

`reproducible` gives every output the same bits however the input is cut; without gradients only.

`accuracy` is what a kernel may give for speed: "direct", "bf16" (large convolutions may run as
F(2,3) in fp16, with the accuracy of bf16), "fast" (F(4,3) too), "fastest" (F(4,3) along rows within
F(2,3) along frames too), "half" (float32 data by products of fp16), or a `Policy`. It is a
permission: on torch's backend nothing is given, and of a call with gradients the gradient of the
input alone is computed so.
"""

from trnconv.pytorch.functional.convolutions import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)

__all__ = [
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
]
