"""What two ranks run with FSDP2: weights in shards, whole while their module runs."""

import torch

from patched_subjects import Subject
from trnconv.pytorch import patch_


def under_fsdp(group, rank, name, order):
    """(unpatched under FSDP2, patched under FSDP2, convolutions that ran on ours)."""
    del group, rank
    mesh = _mesh()
    subject = Subject(name)
    theirs = _sharded(subject.model(), mesh)
    expected = subject.both(theirs)
    model = subject.model()
    if order == "before":
        _sharded(model, mesh)
    report = patch_(model, backend="torch")
    if order == "after":
        _sharded(model, mesh)
    ours = subject.both(model)
    assert any(type(each).__name__ == "DTensor" for each in model.parameters())
    return expected, ours, sum(report.stats.works.values())


def _mesh():
    from torch.distributed.device_mesh import init_device_mesh  # slow to load, and seldom needed

    return init_device_mesh("cpu", (2,))


def _sharded(model, mesh):
    """Inner modules that have weights of their own first; single numbers stay whole."""
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    numbers = {parameter for parameter in model.parameters() if parameter.dim() == 0}
    for module in reversed(list(model.modules())):
        own = set(module.parameters(recurse=False)) - numbers
        if module is not model and own:
            fully_shard(module, mesh=mesh, ignored_params=numbers)
    fully_shard(model, mesh=mesh, ignored_params=numbers)
    for method in ("encode", "decode"):
        if hasattr(model, method):  # some models decode only
            register_fsdp_forward_method(model, method)
    return model


def trained_under_fsdp(group, rank, name):
    """Gradients of one step, unpatched and patched, and their names."""
    del group, rank
    mesh = _mesh()
    subject = Subject(name)
    found = []
    for is_patched in (False, True):
        model = subject.model().requires_grad_()
        _sharded(model, mesh)
        if is_patched:
            patch_(model, backend="torch")
        subject.run(model, "decode", subject.given("decode")).square().mean().backward()
        grads = {
            key: each.grad.full_tensor()
            for key, each in model.named_parameters()
            if each.grad is not None
        }
        found.append(torch.cat([grads[key].flatten() for key in sorted(grads)]))
    return found
