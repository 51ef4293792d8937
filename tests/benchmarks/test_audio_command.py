"""`python -m benchmarks audio`: decoders of the published lengths, planned whole, and measured."""

import pytest

from benchmarks.__main__ import main

torch = pytest.importorskip("torch")

from benchmarks.audio import row_of
from benchmarks.audio_decoders import DECODERS, CodeDecoder, SineStep, SpectrogramDecoder

pytestmark = pytest.mark.audio


@pytest.mark.parametrize("name", DECODERS)
def test_a_frame_is_so_many_samples(name):
    decoder = DECODERS[name]
    with torch.device("meta"):
        made = decoder.make()(torch.empty(1, decoder.channels, 5))
    assert made.shape == (1, 1, 5 * decoder.frame)


def test_layers_of_the_published_configurations():
    with torch.device("meta"):
        vocoder, codec = SpectrogramDecoder(), CodeDecoder()
    counts = [
        sum(isinstance(module, torch.nn.Conv1d) for module in model.modules())
        for model in (vocoder, codec)
    ]
    assert counts == [2 + 4 * 3 * 6, 2 + 4 * 3 * 2]
    taps = {module.kernel_size for module in vocoder.modules() if hasattr(module, "kernel_size")}
    assert taps == {(3,), (7,), (11,), (16,), (4,)}


def test_snake():
    step = SineStep(2)
    step.alpha.data = torch.tensor([0.5, 2.0]).reshape(1, 2, 1)
    line = torch.tensor([[[1.0], [1.0]]])
    expected = [1 + torch.sin(torch.tensor(a)).item() ** 2 / a for a in (0.5, 2.0)]
    assert torch.allclose(step(line).flatten(), torch.tensor(expected))


def test_every_convolution_is_planned_and_the_cpu_is_measured():
    row = row_of(DECODERS["dac"], 512)
    assert row.samples == 512
    assert row.plan.calls == 30
    assert row.plan.trace.left_to_torch == ()
    assert row.plan.seconds > 0
    assert row.cpu_seconds > 0
    assert "%" in row.bounds


def test_an_unknown_decoder_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["audio", "--decoder", "mp3"])
    assert "invalid choice" in capsys.readouterr().err
