"""experimental/conv: conv1d against its torch reference, depthwise_conv1d against torch itself."""

from dataclasses import astuple, dataclass

import numpy as np
import pytest

from nki_library import Case, Tolerance, bfloat16, wide, widened

pytestmark = [pytest.mark.nkilib, pytest.mark.torch]

# The library's test_conv1d.py: rtol = atol = 5e-2 for bfloat16, 1e-5 for float32.
CONV1D_TOLERANCE = {bfloat16: Tolerance(5e-2, 5e-2), np.float32: Tolerance(1e-5, 1e-5)}
# The library's test_depthwise_conv1d.py: rtol = atol = 1e-2 for all types.
DEPTHWISE_TOLERANCE = Tolerance(1e-2, 1e-2)


@dataclass(frozen=True)
class Conv1d:
    batch: int
    channels_in: int
    channels_out: int
    length: int
    taps: int
    stride: int = 1
    padding: tuple = (0, 0)
    dilation: int = 1
    bias: bool = False
    activation: str | None = None
    sharded: bool = False
    dtype: type = np.float32


CONV1D = [
    Conv1d(1, 16, 32, 20, 3),
    Conv1d(1, 16, 32, 20, 3, bias=True, activation="SiLU", dtype=bfloat16),
    Conv1d(2, 64, 128, 40, 5, 2, (2, 2), 2, bias=True, activation="GELU"),
    Conv1d(1, 256, 256, 200, 3, 1, (1, 1), dtype=bfloat16),
    Conv1d(1, 192, 384, 100, 5, 1, (3, 3), activation="SiLU"),
    Conv1d(1, 32, 64, 50, 1),
    Conv1d(1, 48, 64, 128, 100, 1, (1, 1), bias=True),
    Conv1d(1, 64, 128, 100, 5, 10, (2, 2), bias=True, activation="GELU"),
    Conv1d(1, 64, 128, 150, 5, 2, (4, 6), 2, activation="SiLU"),
    Conv1d(1, 48, 96, 60, 7, 1, (2, 4), dtype=bfloat16),
    Conv1d(1, 80, 384, 700, 3, 1, (1, 1), bias=True, activation="GELU", dtype=bfloat16),
    Conv1d(1, 128, 256, 200, 5, 2, (2, 2), bias=True, activation="GELU", sharded=True),
    Conv1d(2, 96, 192, 150, 7, 1, (3, 3), activation="SiLU", sharded=True, dtype=bfloat16),
]


def conv1d_inputs(library, rng, conv):
    activations = library.module("core.utils.common_types").ActFnType
    normal = rng.standard_normal
    size = (conv.taps, conv.channels_in, conv.channels_out)
    return {
        "x_in": normal((conv.batch, conv.channels_in, conv.length)).astype(conv.dtype),
        "filters": normal(size).astype(conv.dtype),
        "bias": normal(conv.channels_out).astype(conv.dtype) if conv.bias else None,
        "stride": conv.stride,
        "padding": conv.padding,
        "dilation": conv.dilation,
        "activation_fn": activations[conv.activation] if conv.activation else None,
        "lnc_shard": conv.sharded,
    }


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("conv", CONV1D, ids=lambda conv: "-".join(map(str, astuple(conv)[:5])))
def test_conv1d(library, rng, conv, cores):
    inputs = conv1d_inputs(library, rng, conv)
    reference = library.module("experimental.conv.conv1d_torch").conv1d_torch_ref
    library.check(
        "experimental/conv/conv1d",
        library.module("experimental.conv.conv1d").conv1d,
        Case(inputs, CONV1D_TOLERANCE[conv.dtype], cores),
        reference(**widened(inputs)),
    )


def test_conv1d_without_values_issues_the_same_instructions(library, rng):
    case = Case(conv1d_inputs(library, rng, CONV1D[-1]), cores=2)
    kernel = library.module("experimental.conv.conv1d").conv1d
    with_values = library.run(kernel, case)
    without = library.run(kernel, case, values=False)
    assert [t.key() for t in without.traces] == [t.key() for t in with_values.traces]
    assert without.output_shapes == with_values.output_shapes


@dataclass(frozen=True)
class Depthwise:
    batch: int
    channels: int
    width: int
    taps: int
    stride: int = 1
    padding: int = 0
    dtype: type = bfloat16


DEPTHWISE = [
    Depthwise(1, 16, 512, 3),
    Depthwise(1, 16, 512, 7, padding=3),
    Depthwise(2, 8, 300, 64),
    Depthwise(1, 16, 512, 200, padding=10),
    Depthwise(1, 16, 512, 200, stride=2, padding=10),
    Depthwise(1, 4, 1200, 128),
    Depthwise(1, 8, 129, 128),
    Depthwise(1, 8, 512, 64, stride=4, dtype=np.float32),
    Depthwise(1, 8, 512, 128, dtype=np.float16),
]


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("conv", DEPTHWISE, ids=lambda conv: "-".join(map(str, astuple(conv)[:6])))
def test_depthwise_conv1d(library, rng, conv, cores):
    import torch

    image = rng.standard_normal((conv.batch, conv.channels, 1, conv.width)).astype(conv.dtype)
    taps = rng.standard_normal((conv.channels, 1, 1, conv.taps)).astype(conv.dtype)
    padding, stride = (0, conv.padding), (1, conv.stride)
    expected = torch.nn.functional.conv2d(
        wide(image), wide(taps), stride=stride, padding=padding, groups=conv.channels
    )
    inputs = {
        "img_ref": image,
        "filter_ref": taps,
        "padding": ((0, 0), (conv.padding, conv.padding)),
        "stride": stride,
        "feature_group_count": conv.channels,
    }
    library.check(
        "experimental/conv/depthwise_conv1d",
        library.module("experimental.conv.depthwise_conv1d").depthwise_conv1d_implicit_gemm,
        Case(inputs, DEPTHWISE_TOLERANCE, cores),
        expected,
    )
