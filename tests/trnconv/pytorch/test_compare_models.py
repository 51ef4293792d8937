"""verify_model: a right model passes, a wrong one does not, and the allowance is as stated."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from trnconv.models import find
from trnconv.pytorch import compare_models
from trnconv.pytorch.compare_models import Error, ModelVerdict, verify_model

pytestmark = pytest.mark.diffusers


@pytest.mark.parametrize("phase", ["encode", "decode"])
def test_a_patched_model_passes(phase):
    verdict = verify_model(find("sdxl"), phase, "bf16")
    assert verdict.passed
    assert verdict.patched > 0
    assert 0 < verdict.floor.rms < 0.05  # bf16 has 8 bits, and there are a few dozen roundings


def test_pools_that_torch_lacks_in_bf16_are_averaged_in_float32():
    """Cosmos averages over volumes; torch's CPU has no such operator in bf16."""
    verdict = verify_model(find("cosmos1.0"), "encode", "bf16")
    assert verdict.passed
    assert verdict.left_to_torch == 0


def test_one_unpatched_run_serves_all_accuracies():
    entry = find("sdxl")
    subject = compare_models.ModelRun(entry, "decode", entry.tiny, reduced=True)
    without = compare_models.run_unpatched(subject)
    for accuracy in ("direct", "bf16"):
        found = compare_models.verdict(subject, without, accuracy)
        assert found.floor == compare_models.verdict(subject, without, "direct").floor
        assert {work.policy.accuracy for work, _ in found.works} == {accuracy}


def test_another_seed_is_another_draw():
    entry = find("sdxl")
    drawn = [
        compare_models.run_unpatched(
            compare_models.ModelRun(entry, "decode", entry.tiny, reduced=True, seed=seed)
        )
        for seed in (0, 1)
    ]
    assert not torch.equal(drawn[0].given, drawn[1].given)
    assert not torch.equal(drawn[0].exact, drawn[1].exact)


def test_a_wrong_weight_is_noticed(monkeypatch):
    patch = compare_models.patch_

    def patch_wrongly(model, **options):
        model.decoder.conv_in.weight.mul_(0.5)
        return patch(model, **options)

    monkeypatch.setattr(compare_models, "patch_", patch_wrongly)
    assert not verify_model(find("sdxl"), "decode", "bf16").passed


def test_twice_the_floor_and_a_little_is_allowed():
    least = Error(rms=0.01, largest=0.1)
    verdict = ModelVerdict(
        ours=Error(0.024, 0.204), floor=least, outputs=1, patched=1, left_to_torch=0
    )
    assert verdict.passed
    assert not replace(verdict, ours=Error(0.026, 0.204)).passed
    assert not replace(verdict, ours=Error(0.024, 0.206)).passed
