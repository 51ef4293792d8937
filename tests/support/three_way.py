"""How far a patched model may be from the unpatched one: three runs of the same numbers.

exact   the unpatched model in float32
floor   the unpatched model in bf16: what the type costs
ours    the patched model in bf16, convolutions simulated

Weights and inputs are rounded to bf16 before any of them runs, so that all three compute the same
function of the same numbers, and only roundings on the way differ. An error is measured against
`exact`, whose own roundings are 2**16 times smaller: once as root mean square, relative to that of
`exact`, and once as the largest, relative to the largest of `exact`.

Where the bound comes from: torch rounds to bf16 after every operator, we do so at the same places
or fewer (a residual and an activation in the end of a convolution are rounded once), and both sum
in float32. So both errors are sums of as many roundings of the same sizes, but different ones: two
draws from one distribution, not one value. A factor of 2 is room for the draw, which is small for
the mean over thousands of pixels and larger for the largest of them. 0.005 is a little more than
one step of bf16 (2**-8 = 0.0039), for models so shallow that the floor is next to nothing. This is
the rule that accelerator ports of these autoencoders are judged by: twice the bf16 floor + 0.005.
A wrong tap, a shifted frame or a lost bias is an error of the size of the values themselves.
"""

from dataclasses import dataclass

import torch

from trnconv.pytorch.model_builder import build, decode, encode, example_latent, example_video

FACTOR = 2
ALLOWANCE = 0.005
FLOAT32_ALLOWANCE = ALLOWANCE / 2**16  # the same part of a step: float32 has 16 bits more
# Wan and Qwen-Image clamp their frames to [-1, 1], where errors would not show. A power of 2.
FADED = 0.25


@dataclass(frozen=True)
class Error:
    rms: float
    largest: float

    @classmethod
    def of(cls, y, exact):
        difference, scale = y.double() - exact.double(), exact.double()
        rms = difference.square().mean().sqrt() / scale.square().mean().sqrt()
        return cls(rms.item(), (difference.abs().max() / scale.abs().max()).item())

    def within(self, floor, allowance=ALLOWANCE):
        """Whether this is at most what the bound allows for such a floor."""
        pairs = ((self.rms, floor.rms), (self.largest, floor.largest))
        return all(own <= FACTOR * least + allowance for own, least in pairs)

    def __str__(self):
        return f"rms {self.rms:.5f} largest {self.largest:.5f}"


def rounded(tensor):
    return tensor.to(torch.bfloat16).float()


def rounded_model(entry, dtype, *, reduced):
    """The model in a type, with weights that bf16 holds, and frames too faint to be clamped."""
    model = build(entry, reduced=reduced, dtype=torch.bfloat16)
    last = getattr(model.decoder, "conv_out", None)
    for parameter in () if last is None else last.parameters():
        parameter.mul_(FADED)
    return torch.nn.Module.to(model, dtype=dtype)


def example(entry, phase, size, *, reduced):
    """An input that bf16 holds, in float32."""
    if phase == "encode":
        return rounded(example_video(entry, size))
    return rounded(example_latent(entry, size, reduced=reduced))


def run(model, entry, phase, given):
    """One encode or decode, in the type of the model's weights."""
    dtype = next(model.parameters()).dtype
    with torch.no_grad():
        return {"encode": encode, "decode": decode}[phase](model, entry, given.to(dtype))
