"""Built at full width, each model makes exactly the convolution calls of the catalogue.

The catalogue was captured by other code than `building`, from hand-written configurations.
"""

from collections import Counter

import pytest

torch = pytest.importorskip("torch")

from recorded_convolutions import Convolution, Recorder
from trnconv.catalogue import calls
from trnconv.models import models
from trnconv.pytorch.model_builder import build, decode, encode, example_latent, example_video

pytestmark = pytest.mark.diffusers

META = {"device": "meta", "dtype": torch.bfloat16}


def captured(model, scenario, phase):
    """How often the catalogue has each call of one run."""
    counts = Counter()
    for call in calls():
        if (call.model, call.scenario, call.phase) == (model, scenario, phase):
            counts[in_the_words_of_torch(call)] += call.calls
    assert counts
    return counts


def in_the_words_of_torch(call):
    return Convolution(
        input=call.input,
        weight=call.weight,
        bias=call.bias,
        stride=call.stride,
        padding=call.padding,
        dilation=call.dilation,
        transposed=call.transposed,
        output_padding=call.output_padding,
        groups=call.groups,
    )


RUNS = [
    pytest.param(entry, capture, phase, id=f"{entry.name}-{capture.scenario}-{phase}")
    for entry in models()
    for capture in entry.captures
    for phase in capture.phases
]


@pytest.mark.parametrize(("entry", "capture", "phase"), RUNS)
def test_a_run_makes_the_captured_calls(entry, capture, phase):
    model = build(entry, **META, tiling=capture.tiling)
    size = entry.size(capture.size)
    with Recorder() as recorder:
        if phase == "encode":
            encode(model, entry, example_video(entry, size, **META))
        else:
            decode(model, entry, example_latent(entry, size, **META))
    assert Counter(recorder.calls) == captured(entry.catalogue, capture.scenario, phase)
