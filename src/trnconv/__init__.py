"""Convolution for AWS Trainium.

The package is a placeholder: geometry, planner, kernels, runtime and the PyTorch front end come
with later releases. What exists today is `nkisim`, the machine they are developed on.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
