"""Running convolutions: the only layer that launches kernels."""

from trnconv.runtime.convolve import Convolved, convolve, plan_for
from trnconv.runtime.modelled import time_plan, trace_plan

__all__ = ["Convolved", "convolve", "plan_for", "time_plan", "trace_plan"]
