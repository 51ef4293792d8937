"""What a convolution costs: of what will run."""

from dataclasses import replace

from nkisim.machine import TRN2
from trnconv.geometry import conv_shape
from trnconv.problem.conv_problem import ConvProblem
from trnconv.runtime.pricing import price


def test_more_pieces_than_a_kernel_takes_are_joined_before_it_runs():
    shape = conv_shape((1, 16, 5, 4, 6), (16, 16, 1, 1, 1))
    whole = ConvProblem(shape, dtype="bfloat16", machine=TRN2)
    in_pieces = replace(whole, pieces=(1, 1, 1, 1, 1))
    for cores in (1, 2):
        assert price(in_pieces, cores=cores) == price(whole, cores=cores)
