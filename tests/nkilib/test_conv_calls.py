"""trnconv's answers to nki-library's calls, against that library's own references."""

import importlib

import numpy as np
import pytest

from tolerance import assert_within
from trnconv import nkilib

pytestmark = [pytest.mark.nkilib, pytest.mark.integrations]
STEP = 2.0**-24  # half a step of float32


def reference(library, name):
    """A reference of the library; it may be newer or older than the call."""
    try:
        module = importlib.import_module(f"nkilib_src.nkilib.experimental.conv.{name}_torch")
    except ModuleNotFoundError:
        pytest.skip(f"this checkout of nki-library has no {name}_torch.py")
    return getattr(module, f"{name}_torch_ref")


def room(magnitude, terms):
    """Sums of so many terms in float32 by either side, and an activation of slope at most 1.2."""
    return 1.2 * 2 * (terms + 4) * STEP * magnitude + 2.0**-22


@pytest.mark.parametrize("activation", [None, "SiLU", "GELU", "GELU_Tanh_Approx", "Swish"])
@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, (0, 0), 1), (2, (3, 1), 2)])
def test_conv1d(library, rng, stride, padding, dilation, activation):
    import torch

    types = library.module("core.utils.common_types").ActFnType
    kind = None if activation is None else types[activation]
    x, filters, bias = (
        rng.standard_normal(sizes, np.float32) for sizes in ((2, 12, 40), (4, 12, 9), (9,))
    )
    options = {"stride": stride, "padding": padding, "dilation": dilation, "activation_fn": kind}
    given = [torch.from_numpy(array) for array in (x, filters, bias)]
    expected = reference(library, "conv1d")(*given, **options)["out"].numpy()
    magnitude = nkilib.conv1d(
        np.abs(x), np.abs(filters), np.abs(bias), **options | {"activation_fn": None}
    )
    y = nkilib.conv1d(x, filters, bias, **options)
    assert_within(y, expected.astype(np.float64), room(magnitude.astype(np.float64), 48))


@pytest.mark.parametrize("padding", [(0, 0, 0, 0, 0, 0), (2, 0, 1, 1, 0, 2)])
def test_conv3d(library, rng, padding):
    import torch

    x, filters, bias = (
        rng.standard_normal(sizes, np.float32)
        for sizes in ((1, 10, 4, 6, 8), (3, 3, 3, 10, 7), (7,))
    )
    given = [torch.from_numpy(array) for array in (x, filters, bias)]
    answer = reference(library, "conv3d")(*given, padding=padding)
    expected = (answer["out"] if isinstance(answer, dict) else answer).numpy()
    magnitude = nkilib.conv3d(np.abs(x), np.abs(filters), np.abs(bias), padding=padding)
    y = nkilib.conv3d(x, filters, bias, padding=padding)
    assert_within(y, expected.astype(np.float64), room(magnitude.astype(np.float64), 270))
