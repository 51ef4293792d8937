"""Tensors as arrays and back."""

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from trnconv.pytorch.backends.arrays import to_array, to_tensor

pytestmark = [pytest.mark.torch, pytest.mark.training]

TYPES = {
    torch.float32: np.float32,
    torch.float16: np.float16,
    torch.bfloat16: ml_dtypes.bfloat16,
    torch.int32: np.int32,
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 4)])
def test_there_and_back(dtype, shape):
    tensor = torch.arange(12)[: max(0, int(np.prod(shape)))].reshape(shape).to(dtype)
    array = to_array(tensor)
    assert array.dtype == TYPES[dtype]
    assert array.shape == shape
    assert array.astype(np.float64).tolist() == tensor.double().tolist()
    assert torch.equal(to_tensor(array.copy()), tensor)


def test_what_lies_in_order_is_not_copied():
    tensor = torch.zeros(3)
    array = to_array(tensor)
    tensor[1] = 5
    assert array.tolist() == [0, 5, 0]


def test_strides_and_gradients_are_no_matter():
    tensor = torch.arange(6.0).reshape(2, 3).requires_grad_()
    assert to_array(tensor.t()).tolist() == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize("dtype", TYPES)
def test_memory_may_still_be_resized(dtype):
    """FSDP2 frees the memory of weights after each use."""
    tensor = torch.ones(4, dtype=dtype)
    array = to_array(tensor)
    assert array.size == 4
    del array
    tensor.untyped_storage().resize_(0)
    assert tensor.untyped_storage().nbytes() == 0
