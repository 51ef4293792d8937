"""Random layers and calls, patched against unpatched: torch's values, gradients, or error type.

`pytest -m "torch and fuzz"` runs 2,000 on torch's backend and 200 on nkisim's besides;
`MODULE_CALLS=20000` that many, and a tenth.
"""

import copy
import os
import warnings

import pytest

torch = pytest.importorskip("torch")

from random_modules import CASTS, random_call
from trnconv.pytorch import patch_

pytestmark = pytest.mark.torch
CALLS = int(os.environ.get("MODULE_CALLS", "2000"))
PARTS = 10


def run(call, model, *, backend=""):
    """Result and gradients, or the error; patched if there is a backend."""
    if call.cast and call.cast_first:
        model.to(CASTS[call.cast])
    if backend:
        patch_(model, backend=backend, lazy=call.lazy)
    if call.cast and not call.cast_first:
        model.to(CASTS[call.cast])
    x = call.x.clone()
    x.requires_grad_(call.gradients and x.is_floating_point())
    try:
        with (
            torch.set_grad_enabled(call.gradients),
            torch.autocast("cpu", dtype=torch.bfloat16, enabled=call.autocast),
        ):
            y = model(x, **call.options)
    except Exception as error:  # noqa: BLE001 (whatever torch raises is the expectation)
        return error
    if not y.requires_grad:
        return [y]
    y.sum().backward()
    return [y.detach(), x.grad, *(parameter.grad for parameter in model.parameters())]


def assert_alike(number, backend):
    call = random_call(number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, of odd dilations and of sizes
        theirs = run(call, copy.deepcopy(call.model))
        ours = run(call, copy.deepcopy(call.model), backend=backend)
    if isinstance(theirs, Exception):
        assert isinstance(ours, type(theirs)), (number, theirs, ours)
        return False
    assert not isinstance(ours, Exception), (number, ours)
    assert len(ours) == len(theirs), number
    for at, (expected, result) in enumerate(zip(theirs, ours, strict=True)):
        if expected is None or result is None:
            assert expected is result, (number, at)
            continue
        assert type(result) is torch.Tensor, (number, at)
        assert (expected.shape, expected.dtype) == (result.shape, result.dtype), (number, at)
        assert torch.equal(expected, result), (number, at)
    return True


@pytest.mark.parametrize(("backend", "count"), [("torch", 240), ("nkisim", 24)])
def test_random_calls(backend, count):
    computed = sum(assert_alike(number, backend) for number in range(count))
    assert computed > count / 3  # the others are errors, of both


@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("backend", ["torch", "nkisim"])
def test_many_random_calls(backend, part):
    count = CALLS if backend == "torch" else CALLS // 10
    for number in range(1000 + part, 1000 + count, PARTS):
        assert_alike(number, backend)
