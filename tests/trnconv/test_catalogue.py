"""The catalogue: complete, readable, and in agreement with geometry."""

from collections import Counter

import pytest

from trnconv.catalogue import calls
from trnconv.errors import UnsupportedError


def test_it_holds_every_captured_call():
    assert len(calls()) == 2557
    kinds = Counter(call.op for call in calls())
    assert kinds == {"conv3d": 2041, "conv2d": 499, "conv1d": 11, "conv_transpose3d": 6}
    assert len({call.model for call in calls()}) == 44


def test_geometry_gives_the_captured_output_of_every_dense_call():
    for call in (call for call in calls() if call.dense):
        shape = call.shape()
        spatial = (1,) * (5 - len(call.output)) + call.output[2:]
        assert (shape.batch, shape.c_out, *shape.out_sizes()) == (*call.output[:2], *spatial), call
        assert shape.macs() == call.macs


def test_a_transposed_call_is_no_convshape():
    transposed = next(call for call in calls() if call.op.startswith("conv_transpose"))
    with pytest.raises(UnsupportedError, match="transposed_shape"):
        transposed.shape()
    sizes = transposed.transposed_shape().out[5 - len(transposed.output) :]
    assert sizes == transposed.output[2:]


def test_grouped_calls_keep_their_groups_and_sizes():
    grouped = [call for call in calls() if call.groups > 1 and not call.transposed]
    assert grouped
    for call in grouped:
        shape = call.shape()
        assert shape.groups == call.groups
        assert shape.out_sizes()[5 - len(call.output) :] == call.output[2:]


def test_wan_2_1_decodes_720p_with_797_calls():
    """The number of calls the fact sheet of the models gives for 81 frames."""
    wan = [
        c for c in calls() if (c.model, c.scenario, c.phase) == ("wan2.1_vae", "720p81", "decode")
    ]
    assert sum(call.calls for call in wan) == 797
    # 633 TFLOP, counted by torch.utils.flop_counter on the same code.
    assert 2 * sum(call.calls * call.macs for call in wan) / 1e12 == pytest.approx(633, abs=0.5)


def test_how_inputs_are_assembled_is_kept():
    fronts = {part.rstrip("0123456789") for call in calls() for part in call.time_front.split("+")}
    assert fronts - {""} <= {"zeros", "cache", "replicate", "reflect", "halo"}
    assert {call.pad_mode for call in calls()} == {"", "zeros", "replicate", "reflect"}
