"""nki-library's calls on torch tensors: as on arrays, against torch's own functions."""

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: N812 (the name everybody uses)

from trnconv import nkilib
from trnconv.errors import UnsupportedError

pytestmark = [pytest.mark.torch, pytest.mark.integrations]
PADDING = (2, 0, 1, 1, 0, 1)


def integers(*sizes):
    """Small integers, whose sums are exact in float32."""
    generator = torch.Generator().manual_seed(sum(sizes))
    return torch.randint(-3, 4, sizes, generator=generator).float()


def operands():
    return integers(2, 6, 3, 6, 9), integers(3, 3, 3, 6, 8), integers(8)


def by_torch(x, filters, bias, stride=1):
    depth, height, width = PADDING[:2], PADDING[2:4], PADDING[4:]
    padded = F.pad(x, (*width, *height, *depth))
    return F.conv3d(padded, filters.permute(4, 3, 0, 1, 2), bias, stride)


@pytest.mark.parametrize("sharded", [False, True])
def test_conv3d(sharded):
    x, filters, bias = operands()
    y = nkilib.conv3d(x, filters, bias, (1, 2, 1), PADDING, lnc_shard=sharded)
    assert torch.equal(y, by_torch(x, filters, bias, (1, 2, 1)))


def test_a_residual_on_either_side_of_the_activation():
    x, filters, bias = operands()
    sums = by_torch(x, filters, bias)
    residual = integers(*sums.shape)
    for place, expected in (
        (nkilib.ResidualAddLoc.PRE_ACT, F.silu(sums + residual)),
        (nkilib.ResidualAddLoc.POST_ACT, F.silu(sums) + residual),
    ):
        y = nkilib.conv3d(
            x,
            filters,
            bias,
            padding=PADDING,
            activation_fn=nkilib.ActFnType.SiLU,
            residual_add_loc=place,
            residuals_in=residual,
        )
        # The sums are exact: what differs is the function, within a few steps of float32.
        assert ((y - expected).abs() <= 2.0**-20 * (1 + sums.abs())).all()


def test_batch_norms_are_torch_s():
    x, filters, bias = operands()
    sums = by_torch(x, filters, bias)
    generator = torch.Generator().manual_seed(0)
    gamma, beta, mean = torch.randn(3, 8, generator=generator)
    variance = torch.rand(8, generator=generator) + 0.5
    given = {"gamma": gamma, "beta": beta, "running_means": mean, "running_variances": variance}
    room = 2.0**-18 * (1 + sums.abs() + mean.abs().max()) * gamma.abs().max()

    y = nkilib.conv3d(
        x, filters, bias, padding=PADDING, batch_norm_mode=nkilib.BatchNormMode.EVAL, **given
    )
    assert ((y - F.batch_norm(sums, mean, variance, gamma, beta)).abs() <= 2 * room).all()

    y, means, variances, new_means, new_variances = nkilib.conv3d(
        x, filters, bias, padding=PADDING, batch_norm_mode=nkilib.BatchNormMode.TRAINING, **given
    )
    running = mean.clone(), variance.clone()
    expected = F.batch_norm(sums, *running, gamma, beta, training=True, momentum=0.1)
    assert ((y - expected).abs() <= room).all()
    torch.testing.assert_close(new_means[:, 0], running[0])
    torch.testing.assert_close(new_variances[:, 0], running[1])
    torch.testing.assert_close(means, sums.mean((0, 2, 3, 4)))
    torch.testing.assert_close(variances, sums.var((0, 2, 3, 4), correction=0))


def test_conv3d_bwd_is_autograd_s():
    x, filters, bias = (tensor.requires_grad_() for tensor in operands())
    y = by_torch(x, filters, bias)
    dy = integers(*y.shape)
    y.backward(dy)
    found = nkilib.conv3d_bwd(dy, x.detach(), filters.detach(), padding=PADDING)
    for gradient, parameter in zip(found, (x, filters, bias), strict=True):
        assert torch.equal(gradient, parameter.grad)


def test_conv1d_and_depthwise_conv1d():
    x, filters, bias = integers(2, 6, 20), integers(4, 6, 5), integers(5)
    y = nkilib.conv1d(x, filters, bias, 2, (3, 0))
    assert torch.equal(y, F.conv1d(F.pad(x, (3, 0)), filters.permute(2, 1, 0), bias, 2))
    image, taps = integers(2, 6, 1, 20), integers(12, 1, 1, 4)
    y = nkilib.depthwise_conv1d(image, taps, ((0, 0), (1, 2)), (1, 2), feature_group_count=6)
    expected = F.conv2d(F.pad(image, (1, 2)), taps, stride=(1, 2), groups=6)
    assert torch.equal(y, expected)
    for wrong in ({"lhs_dilation": (1, 2)}, {"in_perm": (0, 1, 3, 2)}, {"stride": (2, 1)}):
        with pytest.raises(UnsupportedError, match="none of them is computed"):
            nkilib.depthwise_conv1d(image, taps, feature_group_count=6, **wrong)
    with pytest.raises(UnsupportedError, match="feature_group_count=1 with 6 channels"):
        nkilib.depthwise_conv1d(image, taps)


def test_packed_filters_of_tensors_are_tensors():
    _, filters, bias = operands()
    packed = nkilib.pack(filters, bias, x_shape=(1, 6, 3, 6, 9))
    assert [type(tensor) for tensor in packed.tensors] == [torch.Tensor] * 3


def test_a_gradient_is_refused_by_name():
    x, filters, bias = operands()
    with pytest.raises(UnsupportedError, match="nki-library's conv3d has none"):
        nkilib.conv3d(x.requires_grad_(), filters, bias)
    with torch.no_grad():
        nkilib.conv3d(x, filters, bias)


def test_calls_are_compiled_by_torch():
    x, filters, bias = operands()
    compiled = torch.compile(nkilib.conv3d, backend="aot_eager")
    y = compiled(x, filters, bias, padding=PADDING)
    assert torch.equal(y, by_torch(x, filters, bias))
