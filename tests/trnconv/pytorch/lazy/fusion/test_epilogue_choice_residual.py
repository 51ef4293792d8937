"""Sums of lines: at the end of a convolution where that is modelled to be no slower."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn

from integer_networks import integers, with_integers
from trnconv.pytorch import patched
from trnconv.pytorch.estimate import run_on_meta
from trnconv.pytorch.lazy.fusion import epilogue_choice

pytestmark = pytest.mark.torch


class Sum(nn.Module):
    """What a convolution of lines gets, and what it gives."""

    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, 3, padding=1)

    def forward(self, x):
        return x + self.conv(x)


@pytest.mark.parametrize(
    ("lines", "samples", "residual"), [(2, 65536, "before"), (16384, 12, "none")]
)
def test_thousands_of_short_lines_are_added_to_afterwards(lines, samples, residual):
    """A kernel loads the residual of each line by itself: that takes longer than adding all."""
    with torch.device("meta"):
        model = Sum(256).to(torch.bfloat16)
        x = torch.empty(lines, 256, samples, dtype=torch.bfloat16)
    run = run_on_meta(model, lambda own: own(x))
    assert [work.epilogue.residual for work in run.report.stats.works] == [residual]


@pytest.mark.parametrize(
    ("options", "residual"), [({}, "none"), ({"reproducible": True}, "before")]
)
def test_the_bits_of_chunks_do_not_depend_on_their_sizes(options, residual, monkeypatch):
    monkeypatch.setattr(epilogue_choice, "is_epilogue_faster", lambda *_, **__: False)
    model, x = with_integers(Sum(4)), integers(3, 4, 10)
    with torch.no_grad(), patched(model, backend="nkisim", **options) as report:
        y = model(x)
    assert torch.equal(y, Sum.forward(model, x))
    assert [work.epilogue.residual for work in report.stats.works] == [residual]
