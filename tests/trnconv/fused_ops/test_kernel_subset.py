"""Kernels between convolutions stay inside what NKI 0.6 parses and NKI 0.7 traces."""

import pytest

import nkisim.lint
from parser_lint import lint
from trnconv.fused_ops.attention.kernel import attention, attention_on_two_cores
from trnconv.fused_ops.group_norm.kernel import (
    channel_statistics,
    channel_statistics_on_two_cores,
    group_norm,
    group_norm_on_two_cores,
)
from trnconv.fused_ops.group_norm_gradient.kernel import (
    group_norm_gradient,
    group_norm_gradient_on_two_cores,
    group_norm_sums,
    group_norm_sums_on_two_cores,
)
from trnconv.fused_ops.modulation.kernel import modulation, modulation_on_two_cores
from trnconv.fused_ops.rms_norm.kernel import rms_norm, rms_norm_on_two_cores
from trnconv.fused_ops.rms_norm_gradient.kernel import (
    rms_norm_gradient,
    rms_norm_gradient_on_two_cores,
)

KERNELS = (
    attention,
    attention_on_two_cores,
    rms_norm,
    rms_norm_on_two_cores,
    rms_norm_gradient,
    rms_norm_gradient_on_two_cores,
    channel_statistics,
    channel_statistics_on_two_cores,
    group_norm,
    group_norm_on_two_cores,
    group_norm_gradient,
    group_norm_gradient_on_two_cores,
    group_norm_sums,
    group_norm_sums_on_two_cores,
    modulation,
    modulation_on_two_cores,
)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_the_kernel_is_in_the_subset(kernel):
    assert not lint(kernel).findings
    assert not nkisim.lint.lint(kernel, nki="0.7").findings
