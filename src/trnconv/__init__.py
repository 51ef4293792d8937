"""Convolution for AWS Trainium.

`conv1d` ... `conv_transpose3d` compute with NumPy arrays what torch's functions of that name do: a
plan is chosen (`trnconv.plan`), its kernel (`trnconv.kernels`) runs in `nkisim`. `explain` says
what was planned, why, and how long it is modelled to take. The definition is `trnconv.reference`.
"""

from trnconv.runtime.functional import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    explain,
)

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "explain",
]
