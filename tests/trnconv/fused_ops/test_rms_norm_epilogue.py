"""Where a norm is done: at the end of a convolution, or as a kernel of its own."""

from dataclasses import replace
from math import inf

import pytest

from nkisim.machine import TRN1, TRN2
from trnconv.fused_ops.rms_norm.epilogue import is_faster_fused, norms_apart
from trnconv.fused_ops.rms_norm.problem import RmsNorm
from trnconv.geometry import conv_shape
from trnconv.problem.conv_problem import ConvProblem, without_norm
from trnconv.problem.epilogue import BEFORE, Epilogue, NormEpilogue

SHAPE = conv_shape((2, 96, 8, 12, 20), (64, 96, 3, 3, 3), padding=(0, 1, 1))
NORMED = ConvProblem(
    SHAPE,
    TRN2,
    epilogue=Epilogue(residual=BEFORE, norm=NormEpilogue(1e-6, "silu", has_beta=True, first=2)),
)
APART_NS = sum(norm.price(TRN2, 2).ns for norm in norms_apart(NORMED))


def test_norms_apart_have_the_frames_of_each_tensor():
    small, rest = norms_apart(NORMED)
    plane = 12 * 20
    assert small == RmsNorm(64, 2 * plane, "bfloat16", "silu", 2, has_beta=True)
    assert rest == replace(small, positions=4 * plane)
    whole = replace(NORMED, epilogue=Epilogue(norm=NormEpilogue(1e-6)))
    assert [norm.positions for norm in norms_apart(whole)] == [6 * plane]
    assert norms_apart(without_norm(NORMED)) == ()


def test_without_its_norm_all_else_stays():
    assert without_norm(NORMED).epilogue == Epilogue(residual=BEFORE)
    assert without_norm(NORMED).shape is SHAPE


@pytest.mark.parametrize(
    ("normed_ns", "wins"), [(0.99 * APART_NS, True), (1.01 * APART_NS, False), (inf, False)]
)
def test_the_faster_way_is_taken(normed_ns, wins):
    """A convolution of 1 us, with its norm longer by a little less or more than the norm apart."""
    times = {NORMED: 1000 + normed_ns, without_norm(NORMED): 1000}
    assert is_faster_fused(NORMED, 2, times.__getitem__) is wins


def test_without_kernels_of_norms_they_stay_apart():
    asked = replace(NORMED, machine=TRN1)
    assert norms_apart(asked)[0].refuses(TRN1, 1)
    assert not is_faster_fused(asked, 1, lambda _: 0.0)
    assert not is_faster_fused(without_norm(NORMED), 2, lambda _: 0.0)
