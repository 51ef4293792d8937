"""Which convolutions vllm-omni-neuron sends to a kernel: its rules, case by case."""

import pytest

pytest.importorskip("torch")

from trnconv.geometry import ConvShape
from trnconv.integrations.vllm_omni_neuron import COMPILER, route_of

pytestmark = [pytest.mark.torch, pytest.mark.integrations]


def shape(c_in, c_out, frames, *, kernel=(3, 3, 3), columns=160, **more):
    """With cached frames in front, and padding of 1 around frames where there are taps."""
    around = tuple(int(taps == 3) for taps in kernel[1:])
    size = (frames + kernel[0] - 1, 90, columns)
    pads = {"pad_before": (0, *around), "pad_after": (0, *around)}
    return ConvShape(1, c_in, c_out, size, kernel, **pads | more)


SAME = ((0, 1, 1), (0, 1, 1))


@pytest.mark.parametrize(
    ("asked", "kernel", "why"),
    [
        (shape(384, 384, 2), "conv3d", ""),
        (shape(96, 96, 4), "conv3d", ""),
        (shape(384, 384, 1), COMPILER, "1 output frame"),  # the whole first chunk, and D_out = 1
        (shape(16, 384, 4), COMPILER, "16 -> 384 channels"),  # conv_in
        (shape(96, 3, 4, columns=1280), "temporal unroll", ""),  # conv_out, whole frames
        (shape(96, 3, 4, columns=256), COMPILER, "256 columns"),  # conv_out, tiles
        (shape(384, 768, 2, kernel=(3, 1, 1)), COMPILER, "3x1x1 taps"),  # time_conv
        (shape(384, 1152, 1, kernel=(1, 1, 1)), COMPILER, "1x1x1 taps"),  # to_qkv
        (shape(384, 192, 1, kernel=(1, 3, 3)), "conv3d", ""),  # lifted, behind upsampling
        (shape(16, 96, 1, kernel=(1, 3, 3)), COMPILER, "lifted"),
        (shape(96, 96, 1, kernel=(1, 3, 3), stride=(1, 2, 2)), COMPILER, "a stride"),
        (shape(96, 96, 4, pad_before=(2, 1, 1)), COMPILER, "no cache has replaced"),
        (shape(96, 96, 4, pad_after=(0, 0, 1)), COMPILER, "other padding"),
    ],
)
def test_a_route(asked, kernel, why):
    route = route_of(asked)
    assert (route.kernel, route.is_served) == (kernel, kernel != COMPILER)
    assert why in route.why


def test_without_a_bias_nothing_is_sent():
    assert route_of(shape(96, 96, 4), has_bias=False).kernel == COMPILER
