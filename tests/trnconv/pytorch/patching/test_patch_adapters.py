"""LoRA of peft and offloading of accelerate on patched models, in either order."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("einops")

from patched_subjects import NAMES, Subject
from three_way import Error
from trnconv.pytorch import patch_, patched

pytestmark = pytest.mark.adapters

# Roundings of float32 are 2**-16 of those of bf16, whose floor is some 0.01: together some 1e-6.
FLOAT32_BOUND = 1e-4
ORDERS = ("before", "after")
every_model = pytest.mark.parametrize("name", NAMES)
SUBCLASSES = ("cosmos1.0", "kandinsky6-sr")  # of all their convolutions (with_lora)
every_adapted_model = pytest.mark.parametrize("name", [it for it in NAMES if it not in SUBCLASSES])
every_order = pytest.mark.parametrize("order", ORDERS)


def assert_alike(ours, theirs):
    for own, expected in zip(ours, theirs, strict=True):
        assert type(own) is torch.Tensor
        assert Error.of(own, expected).largest <= FLOAT32_BOUND


def with_lora(model):
    """Adapters of rank 2 on every convolution of torch's own class, in one group.

    Not on several groups, which peft warns of. Not on subclasses: peft makes its down-projection of
    their padding and stride, and causal ones have set those to zero, so that it fails unpatched.
    """
    from peft import LoraConfig, inject_adapter_in_model

    kinds = (torch.nn.Conv2d, torch.nn.Conv3d)
    targets = [
        name
        for name, module in model.named_modules()
        if type(module) in kinds and module.groups == 1
    ]
    config = LoraConfig(r=2, lora_alpha=4, target_modules=targets, init_lora_weights=False)
    torch.manual_seed(0)  # of the adapters
    inject_adapter_in_model(config, model)
    return len(targets)


@every_adapted_model
def test_lora_of_peft_before_patching(name):
    subject = Subject(name)
    plain = subject.both(subject.model())
    model = subject.model()
    count = with_lora(model)
    model.eval()
    expected = subject.both(model)
    with patched(model, backend="torch") as report:
        assert_alike(subject.both(model), expected)
        assert report.left_to_torch == ()
        assert sum("lora_A" in entry.name for entry in report.patched) == count > 0
    changes = [
        Error.of(changed, bare).largest for changed, bare in zip(expected, plain, strict=True)
    ]
    assert max(changes) > 100 * FLOAT32_BOUND  # a half may have convolutions of subclasses alone


@every_adapted_model
def test_lora_of_peft_after_patching(name):
    """The convolutions of the model stay ours; the adapters are torch's."""
    subject = Subject(name)
    model = subject.model()
    with_lora(model)
    expected = subject.both(model.eval())
    model = subject.model()
    report = patch_(model, backend="torch")
    with_lora(model)
    assert_alike(subject.both(model.eval()), expected)
    assert report.stats.works


@every_order
@every_model
def test_offloading_of_accelerate(name, order):
    """Weights are on the meta device, and there while their module runs."""
    from accelerate import cpu_offload

    subject = Subject(name)
    model = subject.model()
    expected = subject.both(model)
    if order == "before":
        cpu_offload(model, execution_device=torch.device("cpu"))
    report = patch_(model, backend="torch")
    if order == "after":
        cpu_offload(model, execution_device=torch.device("cpu"))
    assert any(parameter.is_meta for parameter in model.parameters())
    assert_alike(subject.both(model), expected)
    assert report.stats.works
    assert any(parameter.is_meta for parameter in model.parameters())
