"""Plans of the Winograd algorithm alone: those of one transform along one axis, and one at work."""

import numpy as np

from conv_arrays import normal_arrays, numpy_dtype
from fast_bounds import fast_bound
from nkisim.machine import TRN2
from trnconv.algorithms.search import search
from trnconv.algorithms.winograd.plan import family_of
from trnconv.planner.table import algorithm_named
from trnconv.problem.conv_problem import ConvProblem
from trnconv.reference import forward
from trnconv.runtime.launch import LaunchOperands, prepare, run


def winograd_plans(shape, transform, axis, **asked):
    """Legal ones within the budget, priced, the fastest first; whatever the policy."""
    problem = ConvProblem(shape, TRN2, **asked)
    return search(algorithm_named("winograd"), problem, family_of(transform, axis))


def pieces_of(x, plan):
    """x as a plan's kernel takes it, along the frames."""
    ends = np.cumsum(plan.frames)
    return [
        np.ascontiguousarray(x[:, :, e - n : e]) for n, e in zip(plan.frames, ends, strict=True)
    ]


def run_plan(plan, pieces, w, bias=None, residual=None, factors=None):
    """What nkisim saw of a plan's kernel, and its output."""
    return run(prepare((plan,)), LaunchOperands(tuple(pieces), w, bias, residual, factors))


def scaled_integers(plan):
    """x, factors of each piece, w and bias: all that is computed of them is an integer."""
    rng = np.random.default_rng(plan.shape.c_out)
    shape, kind = plan.shape, numpy_dtype("bfloat16")
    x = rng.integers(-2, 3, (shape.batch, shape.c_in, *shape.size)).astype(kind)
    w = (24 * rng.integers(-2, 3, (shape.c_out, shape.c_in, *shape.kernel))).astype(kind)
    bias = rng.integers(-99, 100, shape.c_out).astype(kind)
    factors = rng.integers(-2, 3, plan.factors_spec().shape).astype(np.float32)
    return x, factors, w, bias


def noise(plan):
    """What its kernel computes of noise, what is exact, and how far it may be."""
    x, w, bias = normal_arrays(plan.shape, "bfloat16")
    y = np.asarray(run_plan(plan, pieces_of(x, plan), w, bias).outputs)
    exact = forward(x, w, bias, plan.shape)
    return y, exact, fast_bound(x, w, bias, exact, plan)
