"""Random programs on lazy tensors against plain torch: equal values, and nothing lazy is left.

`pytest -m "torch and fuzz"` runs 1,000; `LAZY_PROGRAMS=20000` that many.
"""

import gc
import os

import pytest

torch = pytest.importorskip("torch")

from lazy_programs import Program, clips
from trnconv.pytorch import patch_
from trnconv.pytorch.lazy import LazyTensor

pytestmark = [pytest.mark.torch, pytest.mark.fuzz]

PROGRAMS = int(os.environ.get("LAZY_PROGRAMS", "1000"))
PARTS = 10
MODES = [torch.no_grad, torch.enable_grad, torch.inference_mode, torch.enable_grad]


def run(seed, mode, *, is_patched):
    """Everything that can be told from outside."""
    model, inputs = Program(seed), clips(seed)
    if is_patched:
        patch_(model, backend="torch")
    with mode():
        out = model(*inputs)
    return out, inputs, model


def gradient(out, model):
    """Of the leaf that the model hides, and all that it returned; the kind of torch's error."""
    recorded = [tensor for tensor in out["all"] if tensor.requires_grad]
    if not recorded:
        return None
    try:
        sum(tensor.sum() for tensor in recorded).backward()
    except RuntimeError as error:
        return str(error)[:60]
    return model.leaf[0].grad


@torch.no_grad()
def equal(left, right):
    return torch.equal(left.nan_to_num(), right.nan_to_num())


def assert_alike(seed, mode):
    theirs, their_clips, model = run(seed, mode, is_patched=False)
    ours, our_clips, patched_model = run(seed, mode, is_patched=True)
    pairs = zip(theirs["all"] + their_clips, ours["all"] + our_clips, strict=True)
    for at, (theirs_now, ours_now) in enumerate(pairs):
        assert type(ours_now) is torch.Tensor, (seed, at)
        assert (theirs_now.shape, theirs_now.dtype) == (ours_now.shape, ours_now.dtype), (seed, at)
        assert equal(theirs_now, ours_now), (seed, at)
        assert strides(theirs_now) == strides(ours_now), (seed, at)
        assert theirs_now.requires_grad == ours_now.requires_grad, (seed, at)
    assert patched_model.log == model.log, seed
    assert_same_gradient(gradient(theirs, model), gradient(ours, patched_model), seed)
    kept = [each["pair"] for each in patched_model.kept]
    assert all(type(x) is torch.Tensor and type(y) is torch.Tensor for x, (y,) in kept), seed
    for theirs_now, ours_now in zip(model.parameters(), patched_model.parameters(), strict=True):
        assert torch.equal(theirs_now, ours_now), seed
    assert_shared_alike(seed, theirs["all"], ours["all"], mode)


def strides(tensor):
    """Along axes of several positions: others have whatever stride they came with."""
    return [step for step, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]


def assert_same_gradient(left, right, seed):
    if isinstance(left, torch.Tensor):
        assert equal(left, right), (seed, left, right)
    else:
        assert left == right, seed


def assert_shared_alike(seed, theirs, ours, mode):
    """A change of one afterwards shows where it does in torch's."""
    at = seed % len(theirs)
    with mode():
        try:
            theirs[at].add_(1)
        except RuntimeError:
            return  # expanded
        ours[at].add_(1)
        for expected, result in zip(theirs, ours, strict=True):
            assert equal(expected, result), (seed, at)


@pytest.mark.parametrize("part", range(PARTS))
def test_random_programs(part):
    for seed in range(part, PROGRAMS, PARTS):
        assert_alike(seed, MODES[seed // PARTS % len(MODES)])
    gc.collect()
    assert not [each for each in gc.get_objects() if type(each) is LazyTensor]
