"""Bits of small runs of every algorithm: what is restructured must compute the same.

Data are small integers, or sums have a fixed order, so that no BLAS has a say.
"""

import hashlib

import ml_dtypes
import numpy as np
import pytest

from trnconv.geometry import conv_shape, input_gradient_shape
from trnconv.problem.epilogue import BEFORE, Epilogue
from trnconv.problem.policy import Policy
from trnconv.runtime import LaunchOptions, convolve_shape, convolve_transposed
from trnconv.runtime.depthwise import depthwise
from trnconv.runtime.weight_gradient import weight_gradient

BF16 = ml_dtypes.bfloat16
_DENSE = conv_shape((1, 40, 4, 9, 17), (24, 40, 3, 3, 3), padding=(0, 1, 1))
_WIDE = conv_shape((1, 96, 4, 10, 16), (96, 96, 3, 3, 3), padding=(0, 1, 1))
_GROUPED = conv_shape((2, 24, 7, 9), (48, 6, 3, 3), stride=2, padding=1, groups=4)
_DOUBLED = conv_shape((1, 12, 6, 7), (20, 12, 3, 3), padding=1, upsample=2)
_REFLECTED = conv_shape((1, 16, 4, 6, 9), (8, 16, 3, 3, 3), padding=1, padding_mode="reflect")
_FAST = Policy("fast", least_macs=0)


def _integers(*shape, seed=0, dtype=BF16):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


def _operands(shape):
    x = _integers(shape.batch, shape.c_in, *shape.size)
    w = _integers(shape.c_out, shape.c_in // shape.groups, *shape.kernel, seed=1)
    return x, w, _integers(shape.c_out, seed=2, dtype=np.float32)


def _convolved(shape, frames=(), residual=False, **options):
    x, w, bias = _operands(shape)
    pieces = np.split(x, np.cumsum(frames)[:-1], axis=2) if frames else (x,)
    if residual:
        options["epilogue"] = Epilogue("relu", BEFORE)
        options["residual"] = _integers(shape.batch, shape.c_out, *shape.out_sizes(), seed=3)
    return convolve_shape(pieces, w, bias, shape, LaunchOptions(**{"cores": 1, **options})).y


def _transposed():
    shape = input_gradient_shape(conv_shape((1, 20, 9, 11), (24, 20, 3, 4), stride=2, padding=1))
    x, w = _integers(1, 24, *shape.size), _integers(24, 20, *shape.kernel, seed=1)
    return convolve_transposed(x, w, None, shape).y


def _weight_gradient():
    x, dy = _integers(2, 20, 9, 11), _integers(2, 12, 9, 11, seed=1)
    done = weight_gradient(x, dy, (3, 3), padding=1, cores=1)
    return np.concatenate([done.dw.ravel(), done.db.ravel()])


def _depthwise(engines, dtype):
    x, w = _integers(2, 70, 4, 40, dtype=dtype), _integers(140, 1, 3, 5, seed=1, dtype=dtype)
    bias = _integers(140, seed=2, dtype=np.float32)
    return depthwise(x, w, bias, padding=1, stride=(1, 2), engines=engines).y


RUNS = {
    "direct": lambda: _convolved(_DENSE),
    "direct on trn1": lambda: _convolved(_DENSE, machine="trn1"),
    "direct on two cores": lambda: _convolved(_DENSE, cores=2),
    "direct, pieces": lambda: _convolved(_DENSE, (1, 3)),
    "direct, residual and ReLU": lambda: _convolved(_DENSE, residual=True),
    "direct, reproducible": lambda: _convolved(_DENSE, reproducible=True),
    "direct, exact": lambda: _convolved(_DENSE, exact=True),
    "direct, grouped": lambda: _convolved(_GROUPED),
    "direct, upsampled": lambda: _convolved(_DOUBLED),
    "direct, reflected": lambda: _convolved(_REFLECTED),
    "winograd": lambda: _convolved(_WIDE, reproducible=True, policy=_FAST),
    "winograd, pieces": lambda: _convolved(_WIDE, (2, 2), reproducible=True, policy=_FAST),
    "transposed": _transposed,
    "depthwise on the Tensor engine": lambda: _depthwise("tensor", BF16),
    "depthwise on the others": lambda: _depthwise("vector", np.float32),
    "weight gradient": _weight_gradient,
}


def _digest(values):
    return hashlib.blake2b(np.ascontiguousarray(values).tobytes(), digest_size=12).hexdigest()


def test_small_runs_have_the_pinned_bits(golden):
    lines = [f"{_digest(run())} {name}" for name, run in RUNS.items()]
    golden("values.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize("name", ["direct", "winograd"])
def test_one_changed_value_changes_the_digest(name):
    y = RUNS[name]()
    before = _digest(y)
    y.flat[0] += 1
    assert _digest(y) != before


def test_the_runs_reach_the_forms_they_are_named_after():
    shape = _WIDE
    x, w, bias = _operands(shape)
    launch = LaunchOptions(cores=1, reproducible=True, policy=_FAST)
    done = convolve_shape((x,), w, bias, shape, launch)
    assert hasattr(done.plans[0][0], "transform")
