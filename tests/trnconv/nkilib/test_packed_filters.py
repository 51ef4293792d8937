"""conv3d inside of a kernel of somebody else's: filters are packed on the host."""

import numpy as np
import pytest

import nkisim
from conv_arrays import integer_arrays
from trnconv import nkilib
from trnconv._nki import nisa, nl
from trnconv.errors import ShapeError, UnsupportedError
from trnconv.geometry import ConvShape
from trnconv.reference import forward

pytestmark = pytest.mark.integrations
SHAPE = ConvShape(1, 8, 12, (3, 6, 10), (3, 3, 3), pad_before=(0, 1, 1), pad_after=(0, 1, 1))
PADDING = (0, 0, 1, 1, 1, 1)


def operands():
    x, w, bias = integer_arrays(SHAPE, "float32")
    return x, w, bias, np.ascontiguousarray(w.transpose(2, 3, 4, 1, 0))


def doubled(y):
    """A step of the kernel around: 2 y, through SBUF."""
    rows = y.reshape((12, 60))
    tile = nl.ndarray(rows.shape, dtype=rows.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=rows)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    out = nl.ndarray(rows.shape, dtype=rows.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


@pytest.mark.parametrize("sharded", [False, True])
def test_a_kernel_around_computes_with_packed_filters(sharded):
    x, w, bias, filters = operands()
    packed = nkilib.pack(filters, bias, x_shape=x.shape, padding=PADDING, lnc_shard=sharded)

    def around(x, *tensors):
        return nkilib.conv3d(x, packed.inside(*tensors), padding=PADDING)

    cores = 2 if sharded else 1
    y = nkisim.simulate(nkisim.Kernel(around)[cores], machine="trn2")(x, *packed.tensors)
    assert (np.asarray(y) == forward(x, w, bias, SHAPE)).all()


def test_what_follows_in_the_kernel_reads_the_output():
    x, w, bias, filters = operands()
    packed = nkilib.pack(filters, bias, x_shape=x.shape, padding=PADDING)

    def around(x, weights, biases, places):
        y = nkilib.conv3d(x, packed.inside(weights, biases, places), padding=PADDING)
        return doubled(y)

    y = nkisim.simulate(nkisim.Kernel(around), machine="trn2")(x, *packed.tensors)
    assert (np.asarray(y).reshape(1, 12, 1, 6, 10) == 2 * forward(x, w, bias, SHAPE)).all()


def test_a_norm_goes_into_the_filters():
    x, w, bias, filters = operands()
    ones = np.ones(12, np.float32)
    norm = nkilib.batch_norm.norm_of(
        nkilib.BatchNormMode.EVAL,
        eps=0.0,
        gamma=2 * ones,
        beta=3 * ones,
        momentum=0.1,
        running_means=ones,
        running_variances=4 * ones,
    )
    packed = nkilib.pack(filters, bias, x_shape=x.shape, padding=PADDING, norm=norm)

    def around(x, *tensors):
        return nkilib.conv3d(x, packed.inside(*tensors), padding=PADDING)

    y = nkisim.simulate(nkisim.Kernel(around), machine="trn2")(x, *packed.tensors)
    assert (np.asarray(y) == forward(x, w, bias, SHAPE) - 1 + 3).all()


@pytest.mark.parametrize(
    ("error", "match", "call"),
    [
        (UnsupportedError, r"x_in is a NkiTensor.*trnconv\.nkilib\.pack", "conv3d(x, tensors[0])"),
        (UnsupportedError, "bias inside of a kernel", "conv3d(x, packed, bias, padding=PADDING)"),
        (ShapeError, "filters packed for .*this call is", "conv3d(x, packed)"),
        (ShapeError, r"packed for x_in \(1, 8", "conv3d(x[:, :4], packed, padding=PADDING)"),
        (UnsupportedError, "EVAL inside of a kernel", "conv3d(x, packed, padding=PADDING, **norm)"),
        (UnsupportedError, "conv1d inside of a kernel", "conv1d(x, packed)"),
    ],
)
def test_what_is_not_packed_or_contradicts_the_packing_is_refused(error, match, call):
    x, _, bias, filters = operands()
    packed = nkilib.pack(filters, bias, x_shape=x.shape, padding=PADDING)
    names = ("gamma", "beta", "running_means", "running_variances")
    norm = {**dict.fromkeys(names, bias), "batch_norm_mode": nkilib.BatchNormMode.EVAL}

    def around(x, bias, *tensors):
        known = {"x": x, "bias": bias, "tensors": tensors, "norm": norm, "PADDING": PADDING}
        known |= {"packed": packed.inside(*tensors), "conv3d": nkilib.conv3d}
        return eval(call, known | {"conv1d": nkilib.conv1d})  # noqa: S307 (a call of the table)

    with pytest.raises(error, match=match):
        nkisim.simulate(nkisim.Kernel(around), machine="trn2")(x, bias, *packed.tensors)


def test_every_packed_tensor_is_an_argument():
    x, _, bias, filters = operands()
    packed = nkilib.pack(filters, bias, x_shape=x.shape, padding=PADDING)
    with pytest.raises(ShapeError, match="2 tensors: 3 were packed"):
        packed.inside(*packed.tensors[1:])


def test_what_is_no_single_launch_is_refused():
    filters = np.zeros((3, 3, 3, 8, 8), np.float32)
    with pytest.raises(UnsupportedError, match="launches inside of a kernel: it is one"):
        nkilib.pack(filters, x_shape=(3, 8, 100, 720, 1280), padding=PADDING)
